import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.pinot.client.ConnectionFactory;
import org.apache.pinot.client.JsonAsyncHttpPinotClientTransportFactory;
import org.apache.pinot.client.PinotClientException;
import org.apache.pinot.client.ResultSetGroup;

/** Asks a node by Pinot's JDBC driver and its Java client, and prints what they hand over: a name, a tab, a value. */
public final class PinotClients {
  private static final String TWO_TABLES = "SELECT COUNT(*) FROM flights a JOIN flights b ON a.delay = b.delay";
  private static final String EVERY_TYPE =
      "SELECT departed, carrier, cancelled, notes, tag, fare, delay, distance, load, stops "
          + "FROM flights WHERE delay = -4 ORDER BY departed LIMIT 1";

  /** Arguments: host and port of a controller, host and port of a broker. */
  public static void main(String[] args) throws Exception {
    String controller = args[0];
    String broker = args[1];
    Class.forName("org.apache.pinot.client.PinotDriver");
    try (Connection jdbc = DriverManager.getConnection("jdbc:pinot://" + controller)) {
      reflect(jdbc);
      query(jdbc);
    }
    Properties listed = new Properties();
    listed.setProperty("brokers", broker);
    listed.setProperty("enableNullHandling", "true");
    listed.setProperty("useMultistageEngine", "true");
    try (Connection jdbc = DriverManager.getConnection("jdbc:pinot://" + controller, listed)) {
      print("jdbc.options", rows(jdbc, TWO_TABLES));
    }
    askByController(controller);
    askByBrokers(broker);
    System.exit(0);  // a client's poll of the controller runs on
  }

  private static void reflect(Connection jdbc) throws SQLException {
    List<String> tables = new ArrayList<>();
    try (ResultSet found = jdbc.getMetaData().getTables(null, null, null, null)) {
      while (found.next()) {
        tables.add(found.getString("TABLE_NAME"));
      }
    }
    print("jdbc.tables", tables);
    try (ResultSet found = jdbc.getMetaData().getColumns(null, null, "flights", null)) {
      while (found.next()) {
        print("jdbc.column." + found.getString("COLUMN_NAME"), found.getString("TYPE_NAME"));
      }
    }
  }

  private static void query(Connection jdbc) throws SQLException {
    try (Statement statement = jdbc.createStatement(); ResultSet found = statement.executeQuery(EVERY_TYPE)) {
      found.next();
      ResultSetMetaData meta = found.getMetaData();
      List<String> types = new ArrayList<>();
      for (int column = 1; column <= meta.getColumnCount(); column++) {
        types.add(meta.getColumnName(column) + " " + meta.getColumnTypeName(column));
      }
      print("jdbc.types", types);
      print("jdbc.timestamp", found.getTimestamp("departed"));
      print("jdbc.string", found.getString("carrier"));
      print("jdbc.boolean", found.getBoolean("cancelled"));
      print("jdbc.json", found.getString("notes"));
      print("jdbc.bytes", found.getString("tag"));
      print("jdbc.decimal", found.getBigDecimal("fare"));
      print("jdbc.int", found.getInt("delay"));
      print("jdbc.long", found.getLong("distance"));
      print("jdbc.double", found.getDouble("load"));
      print("jdbc.list", found.getString("stops"));
    }
    print("jdbc.all_rows", rows(jdbc, "SELECT delay FROM flights").size());
    print("jdbc.no_rows", rows(jdbc, "SELECT delay FROM flights WHERE carrier = 'none'"));
    print("jdbc.constant", rows(jdbc, "SELECT 1"));
    String text =
        "SELECT COUNT(*), MAX(delay) FROM flights WHERE carrier = ? AND delay >= ? AND load < ? AND departed < ?";
    try (PreparedStatement prepared = jdbc.prepareStatement(text)) {
      prepared.setString(1, "UA");
      prepared.setInt(2, 0);
      prepared.setDouble(3, 4.5);
      prepared.setTimestamp(4, java.sql.Timestamp.valueOf("2013-01-02 00:00:00"));
      print("jdbc.prepared", rows(prepared.executeQuery()));
    }
    try {
      rows(jdbc, "SELECT altitude FROM flights");
    } catch (SQLException error) {
      print("jdbc.error", oneLine(error.getCause()));
    }
  }

  private static void askByController(String controller) throws Exception {
    String[] parts = controller.split(":");
    ask("controller", ConnectionFactory.fromController("http", parts[0], Integer.parseInt(parts[1])));
  }

  private static void askByBrokers(String broker) throws Exception {
    ask("brokers", ConnectionFactory.fromHostList(broker));
    Properties options = new Properties();
    options.setProperty("failOnExceptions", "false");
    options.setProperty("queryOptions", "timeoutMs=5000");
    var transport = new JsonAsyncHttpPinotClientTransportFactory().withConnectionProperties(options).buildTransport();
    var client = ConnectionFactory.fromHostList(options, List.of(broker), transport);
    ResultSetGroup answer = client.execute("flights", "SELECT altitude FROM flights");
    print(
        "brokers.tolerated",
        answer.getExceptions().size() + " exceptions, " + answer.getResultSetCount() + " results");
  }

  private static void ask(String name, org.apache.pinot.client.Connection client) throws Exception {
    String grouped = "SELECT carrier, COUNT(*), SUM(distance) FROM flights GROUP BY carrier ORDER BY carrier";
    print(name + ".groups", told(client.execute(grouped)));
    print(name + ".of_table", told(client.execute("flights", "SELECT COUNT(*) FROM flights")));
    print(name + ".async", told(client.executeAsync("SELECT MIN(delay) FROM flights").get(30, TimeUnit.SECONDS)));
    print(name + ".two_tables", told(client.execute("SET useMultistageEngine=true; " + TWO_TABLES)));
    org.apache.pinot.client.PreparedStatement prepared =
        client.prepareStatement("SELECT COUNT(*) FROM flights WHERE origin = ? AND delay > ?");
    prepared.setString(0, "JFK");
    prepared.setInt(1, 0);
    print(name + ".prepared", told(prepared.execute()));
    var stats = client.execute("SELECT COUNT(*) FROM flights").getExecutionStats();
    String servers = stats.getNumServersQueried() + " " + stats.getNumServersResponded();
    print(name + ".stats", stats.getTotalDocs() + " " + stats.getNumSegmentsQueried() + " " + servers);
    try {
      client.execute("SELEC 1");
    } catch (PinotClientException error) {
      print(name + ".error", oneLine(error));
    }
  }

  private static String oneLine(Throwable error) {
    return error.getMessage().replaceAll("\\s+", " ");
  }

  private static List<List<String>> told(ResultSetGroup answer) {
    List<List<String>> rows = new ArrayList<>();
    for (int row = 0; row < answer.getResultSet(0).getRowCount(); row++) {
      List<String> cells = new ArrayList<>();
      for (int column = 0; column < answer.getResultSet(0).getColumnCount(); column++) {
        cells.add(answer.getResultSet(0).getString(row, column));
      }
      rows.add(cells);
    }
    return rows;
  }

  private static List<List<String>> rows(Connection jdbc, String sql) throws SQLException {
    try (Statement statement = jdbc.createStatement()) {
      return rows(statement.executeQuery(sql));
    }
  }

  private static List<List<String>> rows(ResultSet found) throws SQLException {
    List<List<String>> rows = new ArrayList<>();
    while (found.next()) {
      List<String> cells = new ArrayList<>();
      for (int column = 1; column <= found.getMetaData().getColumnCount(); column++) {
        cells.add(found.getString(column));
      }
      rows.add(cells);
    }
    return rows;
  }

  private static void print(String name, Object value) {
    System.out.println(name + "\t" + value);
  }
}
