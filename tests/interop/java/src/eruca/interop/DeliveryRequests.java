package eruca.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Many requests: asked and answered here, or by somebody else at the other end of a topic that is told. */
final class DeliveryRequests {
    private static final int AT_A_TIME = 8;
    private static final long PATIENCE_MS = 25_000;

    /** Asks and answers. */
    public void requests(Scene scene) throws Exception {
        int count = scene.request.getIntValue("count");
        String topic = scene.topic(4);
        AtomicInteger answered = serve(scene, topic);
        scene.fact("replies", ask(scene, topic, count));
        // The reply may be here before its sender is told so.
        Scene.await("the last answer", () -> answered.get() >= count);
        scene.fact("answered", answered.get());
    }

    /** Asks; another program answers. */
    public void asks(Scene scene) throws Exception {
        scene.fact("replies", ask(scene, scene.request.getString("topic"), scene.request.getIntValue("count")));
    }

    /** Answers as many requests as it is told; another program asks. */
    public void answers(Scene scene) throws Exception {
        AtomicInteger answered = serve(scene, scene.request.getString("topic"));
        Scene.await("the requests", () -> answered.get() >= scene.request.getIntValue("count"));
        scene.fact("answered", answered.get());
    }

    private static List<String> ask(Scene scene, String topic, int count) throws Exception {
        DefaultMQProducer producer = scene.producer();
        ExecutorService threads = Executors.newFixedThreadPool(AT_A_TIME);
        try {
            List<Future<String>> replies = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                Message question = Scene.message(topic, "q" + number);
                replies.add(threads.submit(
                    () -> new String(producer.request(question, PATIENCE_MS).getBody(), StandardCharsets.UTF_8)));
            }
            List<String> bodies = new ArrayList<>();
            for (Future<String> reply : replies) {
                bodies.add(reply.get());
            }
            return bodies;
        } finally {
            threads.shutdownNow();
        }
    }

    private static AtomicInteger serve(Scene scene, String topic) throws Exception {
        AtomicInteger answered = new AtomicInteger();
        DefaultMQProducer replier = scene.start(new DefaultMQProducer(scene.name("repliers")));
        DefaultMQPushConsumer server = scene.consumer(scene.name("servers"));
        server.subscribe(topic, "*");
        server.registerMessageListener((List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
            try {
                for (MessageExt message : messages) {
                    byte[] body = ("re " + Inbox.text(message)).getBytes(StandardCharsets.UTF_8);
                    replier.send(MessageUtil.createReplyMessage(message, body), Scene.TIMEOUT_MS);
                    answered.incrementAndGet();
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            } catch (Exception error) {
                error.printStackTrace();
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
        });
        scene.start(server);
        return answered;
    }
}
