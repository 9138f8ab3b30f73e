// SPDX-License-Identifier: Apache-2.0
// clickhouse-java's client-v2, unchanged, against chxad: see tests/e2e/test_clients.py for what is expected of it.
//
// Usage: java ClientV2 URL DATABASE. Prints one JSON object: what each step gave.
import com.clickhouse.client.api.Client;
import com.clickhouse.client.api.ServerException;
import com.clickhouse.client.api.insert.InsertResponse;
import com.clickhouse.client.api.insert.InsertSettings;
import com.clickhouse.client.api.query.GenericRecord;
import com.clickhouse.data.ClickHouseFormat;
import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;

public class ClientV2 {
    /** A row as an object, which the client writes as RowBinary. */
    public static class Row {
        private final long n;
        private final String s;

        public Row(long n, String s) {
            this.n = n;
            this.s = s;
        }

        public long getN() {
            return n;
        }

        public String getS() {
            return s;
        }
    }

    static final HttpClient http = HttpClient.newHttpClient();
    static String url;
    static String database;

    static void rest(String method, String path) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + path))
            .method(method, HttpRequest.BodyPublishers.noBody()).build();
        HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() >= 300) throw new IllegalStateException(answer.body());
    }

    static Client connect(String xid, boolean compress, boolean httpCompression) {
        Client.Builder builder = new Client.Builder().addEndpoint(url).setUsername("default").setPassword("")
            .setDefaultDatabase(database).compressClientRequest(compress).useHttpCompression(httpCompression);
        if (xid != null) builder.httpHeader("X-Chxa-Transaction", xid);
        return builder.build();
    }

    static long count(Client client) {
        List<GenericRecord> rows = client.queryAll("SELECT count() AS n FROM t");
        return rows.get(0).getLong("n");
    }

    static InsertResponse insert(Client client, ClickHouseFormat format, String rows) throws Exception {
        return insert(client, format, rows, new InsertSettings());
    }

    static InsertResponse insert(Client client, ClickHouseFormat format, String rows, InsertSettings settings) throws Exception {
        byte[] bytes = rows.getBytes(StandardCharsets.UTF_8);
        return client.insert("t", new ByteArrayInputStream(bytes), format, settings).get();
    }

    static String failure(Client client, String rows) throws Exception {
        try {
            insert(client, ClickHouseFormat.TSV, rows);
            return "none";
        } catch (ServerException error) {
            return "ServerException " + error.getCode();
        } catch (ExecutionException error) {
            Throwable cause = error.getCause();
            return cause instanceof ServerException server ? "ServerException " + server.getCode() : cause.toString();
        }
    }

    public static void main(String[] args) throws Exception {
        url = args[0];
        database = args[1];
        Map<String, Object> seen = new LinkedHashMap<>();
        Client plain = connect(null, false, false);
        seen.put("ping", plain.ping());
        plain.execute("CREATE TABLE t (n UInt64, s String) ENGINE = MergeTree ORDER BY n").get();

        rest("PUT", "/v1/transactions/java-1");
        Client inside = connect("java-1", false, false);
        Client blocks = connect("java-1", true, false);
        Client frames = connect("java-1", true, true);
        insert(inside, ClickHouseFormat.TSV, "1\ta\n2\tb\n");
        insert(inside, ClickHouseFormat.JSONEachRow, "{\"n\": 3, \"s\": \"c\"}\n");
        StringBuilder many = new StringBuilder();
        for (int i = 10; i < 10010; i++) many.append(i).append("\tlz4 blocks\n");
        insert(blocks, ClickHouseFormat.TSV, many.toString());
        insert(frames, ClickHouseFormat.TSV, "4\tlz4 frames\n");
        List<Row> rows = new ArrayList<>();
        for (int i = 20000; i < 20100; i++) rows.add(new Row(i, "object"));
        for (Client client : List.of(inside, blocks, frames)) {
            client.register(Row.class, client.getTableSchema("t"));
            client.insert("t", rows).get();
        }
        seen.put("before_commit", count(inside));
        rest("POST", "/v1/transactions/java-1/commit");
        seen.put("after_commit", count(plain));

        rest("PUT", "/v1/transactions/java-2");
        InsertResponse response = insert(plain, ClickHouseFormat.TSV, "30000\tx\n",
            new InsertSettings().httpHeader("X-Chxa-Transaction", "java-2"));
        seen.put("summary_rows", response.getWrittenRows());
        rest("POST", "/v1/transactions/java-2/rollback");
        seen.put("after_rollback", count(plain));

        rest("PUT", "/v1/transactions/java-3");
        Client third = connect("java-3", true, false);
        seen.put("bad_row", failure(third, "not a number\tx\n"));
        insert(third, ClickHouseFormat.TSV, "40000\tgood\n");
        rest("POST", "/v1/transactions/java-3/commit");
        seen.put("after_bad", count(plain));
        seen.put("no_transaction", failure(connect("nobody", false, false), "1\ta\n"));
        insert(plain, ClickHouseFormat.TSV, "50000\toutside\n");
        seen.put("outside", count(plain));
        Json.print(seen);
        System.exit(0);
    }
}
