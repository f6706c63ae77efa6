// Asks Apache RocketMQ's own filter about cases.json and writes what it answers, one line an expression.
// Needs rocketmq-filter, of 4.9.7 and of 5.3.3, and what it depends on on the class path:
//   javac -cp "$JARS" -d out Capture.java && java -cp "$JARS:out" Capture <this folder> <release>
// <release>.txt: a line is one letter for each properties: T true, F false, N null, E an exception; or "-" for a text
// that is refused.
// bloom.txt: the bits of names in Bloom filters.

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.rocketmq.filter.SqlFilter;
import org.apache.rocketmq.filter.expression.*;
import org.apache.rocketmq.filter.util.BloomFilter;

public class Capture {
    public static void main(String[] args) throws Exception {
        Path folder = Paths.get(args[0]);
        JSONObject cases = JSON.parseObject(
            new String(Files.readAllBytes(folder.resolve("cases.json")), StandardCharsets.UTF_8));
        JSONArray properties = cases.getJSONArray("properties");
        StringBuilder answers = new StringBuilder();
        for (Object text : cases.getJSONArray("expressions")) {
            answers.append(answer((String) text, properties)).append('\n');
        }
        Files.write(folder.resolve(args[1] + ".txt"), answers.toString().getBytes(StandardCharsets.UTF_8));
        Files.write(folder.resolve("bloom.txt"), bloom().getBytes(StandardCharsets.UTF_8));
    }

    // error rate, names, bits, hashes, then name = positions
    static String bloom() {
        StringBuilder lines = new StringBuilder();
        for (int rate : new int[] {1, 5, 10, 20, 25, 49, 50, 75, 99}) {
            for (int names : new int[] {1, 7, 32, 64, 1000}) {
                BloomFilter filter = BloomFilter.createByFn(rate, names);
                lines.append(rate + " " + names + " " + filter.getM() + " " + filter.getK());
                String name = "";
                for (int i = 0; i < 5; i++) {
                    name += "g" + i + "#\u4f60T" + names;
                    lines.append(" " + name + "=" + Arrays.toString(filter.calcBitPositions(name)).replace(" ", ""));
                }
                lines.append('\n');
            }
        }
        return lines.toString();
    }

    static String answer(String text, JSONArray properties) {
        Expression expression;
        try {
            expression = new SqlFilter().compile(text);
        } catch (Throwable refused) {
            return "-";
        }
        StringBuilder line = new StringBuilder();
        for (int i = 0; i < properties.size(); i++) {
            line.append(letter(expression, properties.getJSONObject(i)));
        }
        return line.toString();
    }

    static char letter(Expression expression, Map<String, Object> properties) {
        try {
            Object value = expression.evaluate(new EvaluationContext() {
                public Object get(String name) {
                    return properties.get(name);
                }

                public Map<String, Object> keyValues() {
                    return properties;
                }
            });
            return value == null ? 'N' : (Boolean) value ? 'T' : 'F';
        } catch (Throwable failed) {
            return 'E';
        }
    }
}
