package eruca.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What programs share that handle one request after the other: a JSON request on the input, a row on the output. */
final class Requests {
    private Requests() {}

    /** How long clients wait for answers. Their own three seconds are too few on a busy machine. */
    static final int PATIENCE_MS = 60_000;

    /** Does what a request asks for; gives the row of the answer, or null for none. */
    interface Handler {
        Object handle(JSONObject request) throws Exception;
    }

    /** Answers requests until the input ends, which is the end of the program. */
    static void serve(Handler handler, SerializerFeature... style) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        // Libraries may print; the real output is for answers only.
        System.setOut(System.err);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                Object row = handler.handle(JSON.parseObject(line));
                if (row != null) {
                    out.println(JSON.toJSONString(Map.of("row", row), style));
                }
                out.println("{\"done\":" + (row == null ? 0 : 1) + "}");
            } catch (Throwable error) {
                error.printStackTrace();
                out.println(JSON.toJSONString(Map.of("error", String.valueOf(error))));
            }
            out.flush();
        }
        // Clients leave threads behind that nobody waits for.
        Runtime.getRuntime().halt(0);
    }

    /** Makes a topic on one broker (address, topic, queues), and ends the client that does it. */
    static void createTopic(DefaultMQAdminExt admin, JSONObject request) throws Exception {
        admin.start();
        int queues = request.getIntValue("queues");
        admin.createAndUpdateTopicConfig(
            request.getString("address"), new TopicConfig(request.getString("topic"), queues, queues, 6));
        admin.shutdown();
    }
}
