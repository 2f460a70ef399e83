import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/** Iceberg's own REST catalog over a database in a file, on a free port of the loopback interface. */
public class RestCatalog {
  public static void main(String[] given) throws Exception {
    JdbcCatalog catalog = new JdbcCatalog();
    catalog.setConf(new org.apache.hadoop.conf.Configuration());
    catalog.initialize(
        "served",
        Map.of("uri", System.getProperty("uri"), "warehouse", System.getProperty("warehouse")));
    ServletContextHandler handler = new ServletContextHandler();
    handler.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
    server.setHandler(handler);
    server.start();
    int port = ((ServerConnector) server.getConnectors()[0]).getLocalPort();
    Path told = Path.of(given[0]);
    Files.writeString(Path.of(told + ".new"), Integer.toString(port));
    Files.move(Path.of(told + ".new"), told);
    server.join();
  }
}
