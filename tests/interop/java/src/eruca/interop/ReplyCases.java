package eruca.interop;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Requests and their replies through the broker. */
final class ReplyCases {
    private static void serve(Scene scene, String topic) throws Exception {
        DefaultMQProducer replier = scene.start(new DefaultMQProducer(scene.name("repliers")));
        DefaultMQPushConsumer server = scene.consumer(scene.name("servers"));
        server.subscribe(topic, "*");
        server.registerMessageListener((List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
            try {
                for (MessageExt message : messages) {
                    byte[] body = ("reply to " + Inbox.text(message)).getBytes(StandardCharsets.UTF_8);
                    replier.send(MessageUtil.createReplyMessage(message, body), 3000);
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            } catch (Exception error) {
                error.printStackTrace();
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
        });
        scene.start(server);
        PushCases.awaitQueues(server, topic, 1);
    }

    public void requestAndReply(Scene scene) throws Exception {
        String topic = scene.topic(1);
        serve(scene, topic);
        Message reply = scene.producer().request(Scene.message(topic, "question"), Scene.TIMEOUT_MS);
        scene.fact("reply", new String(reply.getBody(), StandardCharsets.UTF_8));
        scene.fact("type", reply.getProperty("MSG_TYPE"));
        scene.fact("topic", reply.getTopic());
        scene.fact("next reply", new String(
            scene.producer().request(Scene.message(topic, "again"), Scene.TIMEOUT_MS).getBody(), StandardCharsets.UTF_8));
    }

    public void requestAndReplyAsync(Scene scene) throws Exception {
        String topic = scene.topic(1);
        serve(scene, topic);
        CompletableFuture<Message> told = new CompletableFuture<>();
        scene.producer().request(Scene.message(topic, "question"), new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                // The client calls once when the request is sent, without a message, and once more for the reply.
                if (message != null) {
                    told.complete(message);
                }
            }

            @Override
            public void onException(Throwable error) {
                told.completeExceptionally(error);
            }
        }, Scene.TIMEOUT_MS);
        Message reply = told.get(Scene.DEADLINE_MS, TimeUnit.MILLISECONDS);
        scene.fact("reply", new String(reply.getBody(), StandardCharsets.UTF_8));
    }

    public void requestWithoutReply(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        boolean timedOut = false;
        try {
            scene.producer().request(Scene.message(queue.getTopic(), "question"), 500);
        } catch (RequestTimeoutException error) {
            timedOut = true;
        }
        scene.fact("timed out", timedOut);
        MessageExt request = scene.readOne(queue);
        scene.fact("names the sender", request.getProperty("REPLY_TO_CLIENT").equals(scene.producer().buildMQClientId()));
        scene.fact("has a correlation", request.getProperty("CORRELATION_ID") != null);
        scene.fact("time to live", request.getProperty("TTL"));
    }
}
