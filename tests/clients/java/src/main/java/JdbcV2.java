// SPDX-License-Identifier: Apache-2.0
// clickhouse-java's jdbc-v2, unchanged, against chxad: see tests/e2e/test_clients.py for what is expected of it.
//
// Usage: java JdbcV2 URL DATABASE. Prints one JSON object: what each step gave.
import com.clickhouse.jdbc.Driver;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.sql.Connection;

import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;

public class JdbcV2 {
    static final HttpClient http = HttpClient.newHttpClient();
    static String url;
    static String database;

    static void rest(String method, String path) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + path))
            .method(method, HttpRequest.BodyPublishers.noBody()).build();
        HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() >= 300) throw new IllegalStateException(answer.body());
    }

    static Connection connect(String xid, boolean compress) throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", "default");
        properties.setProperty("password", "");
        properties.setProperty("compress", "true");
        properties.setProperty("decompress", Boolean.toString(compress));
        if (xid != null) properties.setProperty("http_header_X-Chxa-Transaction", xid);
        return new Driver().connect("jdbc:clickhouse:" + url.substring("http:".length()) + "/" + database, properties);
    }

    static long count(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement();
             ResultSet rows = statement.executeQuery("SELECT count() FROM t")) {
            rows.next();
            return rows.getLong(1);
        }
    }

    static void batch(Connection connection, int first, int n) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("INSERT INTO t (n, s) VALUES (?, ?)")) {
            for (int i = first; i < first + n; i++) {
                statement.setLong(1, i);
                statement.setString(2, "it's \\ batch");
                statement.addBatch();
            }
            statement.executeBatch();
        }
    }

    static String failure(Connection connection, String sql) {
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate(sql);
            return "none";
        } catch (SQLException error) {
            return "SQLException " + error.getErrorCode();
        }
    }

    public static void main(String[] args) throws Exception {
        url = args[0];
        database = args[1];
        Map<String, Object> seen = new LinkedHashMap<>();
        Connection plain = connect(null, false);
        seen.put("ping", plain.isValid(5));
        try (Statement statement = plain.createStatement()) {
            statement.execute("CREATE TABLE t (n UInt64, s String) ENGINE = MergeTree ORDER BY n");
        }
        rest("PUT", "/v1/transactions/jdbc-1");
        Connection inside = connect("jdbc-1", false);
        Connection packed = connect("jdbc-1", true);
        batch(inside, 0, 1000);
        batch(packed, 1000, 1000);
        try (Statement statement = packed.createStatement()) {
            statement.executeUpdate("INSERT INTO t SELECT number + 2000, 'select' FROM numbers(10)");
            statement.executeUpdate("INSERT INTO t FORMAT JSONEachRow {\"n\": 2010, \"s\": \"json\"}");
        }
        seen.put("before_commit", count(inside));
        rest("POST", "/v1/transactions/jdbc-1/commit");
        seen.put("after_commit", count(plain));

        rest("PUT", "/v1/transactions/jdbc-2");
        batch(connect("jdbc-2", false), 5000, 10);
        rest("POST", "/v1/transactions/jdbc-2/rollback");
        seen.put("after_rollback", count(plain));

        rest("PUT", "/v1/transactions/jdbc-3");
        Connection third = connect("jdbc-3", false);
        seen.put("bad_row", failure(third, "INSERT INTO t VALUES ('not a number', 1)"));
        batch(third, 6000, 1);
        rest("POST", "/v1/transactions/jdbc-3/commit");
        seen.put("after_bad", count(plain));
        seen.put("no_transaction", failure(connect("nobody", false), "INSERT INTO t VALUES (1, 'a')"));
        batch(plain, 7000, 1);
        seen.put("outside", count(plain));
        Json.print(seen);
        System.exit(0);
    }
}
