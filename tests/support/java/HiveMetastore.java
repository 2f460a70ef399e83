import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
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
  /** File system of buckets in which every folder exists. A metastore only checks that locations exist. */
  public static class Buckets extends RawLocalFileSystem {
    private URI bucket;

    @Override
    public void initialize(URI uri, Configuration conf) {
      bucket = uri;
      setConf(conf);
    }

    @Override
    public URI getUri() {
      return bucket == null ? URI.create("s3:///") : bucket; // the parent's constructor calls this method
    }

    @Override
    public FileStatus getFileStatus(org.apache.hadoop.fs.Path path) {
      return new FileStatus(0, true, 1, 1, 0, path);
    }

    @Override
    public boolean mkdirs(org.apache.hadoop.fs.Path path, FsPermission permission) {
      return true;
    }
  }

  public static void main(String[] given) throws Exception {
    HiveConf conf = new HiveConf();
    conf.setClassLoader(HiveMetastore.class.getClassLoader());
    conf.setClass("fs.s3.impl", Buckets.class, FileSystem.class);
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
