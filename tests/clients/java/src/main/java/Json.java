// SPDX-License-Identifier: Apache-2.0
// One flat JSON object on standard output.
import java.util.Map;
import java.util.StringJoiner;

final class Json {
    private Json() {
    }

    static void print(Map<String, Object> values) {
        StringJoiner out = new StringJoiner(", ", "{", "}");
        values.forEach((name, value) -> out.add("\"" + name + "\": "
            + (value instanceof String text ? "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + "\"" : value)));
        System.out.println(out);
    }
}
