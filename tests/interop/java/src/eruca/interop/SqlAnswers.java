package eruca.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/**
 * What the broker's own filter says: a line {"cases": [[expression, {property: value}], ...]} is answered with a row for
 * each: true, false, null, error (while evaluating) or refused (it does not compile).
 */
public final class SqlAnswers {
    private SqlAnswers() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JSONArray cases = JSON.parseObject(line).getJSONArray("cases");
            for (int number = 0; number < cases.size(); number++) {
                JSONArray one = cases.getJSONArray(number);
                out.println("{\"row\":\"" + answer(one.getString(0), one.getJSONObject(1)) + "\"}");
            }
            out.println("{\"done\":" + cases.size() + "}");
            out.flush();
        }
    }

    private static String answer(String text, JSONObject properties) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(text);
        } catch (MQFilterException error) {
            return "refused";
        }
        Map<String, String> values = new HashMap<>();
        properties.forEach((name, value) -> values.put(name, (String) value));
        try {
            return String.valueOf(expression.evaluate(new MessageEvaluationContext(values)));
        } catch (Throwable error) {
            return "error";
        }
    }
}
