package eruca.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * Consumes through a filter server: a line {"nameServer", "group", "topic", "className", "source", "count"} is answered
 * with the bodies of the first messages that come, or with as many as come within half a minute.
 */
public final class ClassFilterConsumer {
    private ClassFilterConsumer() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JSONObject wanted = JSON.parseObject(line);
            BlockingQueue<String> bodies = new LinkedBlockingQueue<>();
            DefaultMQPushConsumer consumer = start(wanted, bodies);
            int rows = 0;
            for (; rows < wanted.getIntValue("count"); rows++) {
                String body = bodies.poll(30, TimeUnit.SECONDS);
                if (body == null) {
                    break;
                }
                out.println("{\"row\":" + JSON.toJSONString(body) + "}");
            }
            consumer.shutdown();
            out.println("{\"done\":" + rows + "}");
            out.flush();
        }
    }

    @SuppressWarnings("deprecation")
    private static DefaultMQPushConsumer start(JSONObject wanted, BlockingQueue<String> bodies) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(wanted.getString("group"));
        consumer.setNamesrvAddr(wanted.getString("nameServer"));
        consumer.setMqClientApiTimeout(Requests.PATIENCE_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(wanted.getString("topic"), wanted.getString("className"), wanted.getString("source"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> bodies.add(new String(message.getBody(), StandardCharsets.UTF_8)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }
}
