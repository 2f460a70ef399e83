import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/** A Hive metastore on a free port of the loopback interface: Hive's own main listens on every interface. */
public class HiveMetastore {
  public static void main(String[] given) throws Exception {
    HiveConf conf = new HiveConf();
    HiveMetaStore.HMSHandler base = new HiveMetaStore.HMSHandler("for tests", conf, false);
    IHMSHandler handler = RetryingHMSHandler.getProxy(conf, base, true);
    ServerSocket socket = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
    Path told = Path.of(given[0]);
    Files.writeString(Path.of(told + ".new"), Integer.toString(socket.getLocalPort()));
    Files.move(Path.of(told + ".new"), told);
    TThreadPoolServer.Args args =
        new TThreadPoolServer.Args(new TServerSocket(socket))
            .processor(new TSetIpAddressProcessor<>(handler))
            .protocolFactory(new TBinaryProtocol.Factory());
    new TThreadPoolServer(args).serve();
  }
}
