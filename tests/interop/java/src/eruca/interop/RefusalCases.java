package eruca.interop;

import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.header.SendMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What a broker does not take, and what it says then. */
final class RefusalCases {
    private static final int SEND_MESSAGE = 10;

    public void bodyTooLarge(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        byte[] body = new byte[4 * 1024 * 1024 + 1];
        new Random(1).nextBytes(body);
        DefaultMQProducer producer = scene.start(SendCases.plainProducer(scene));
        scene.fact("refusal", scene.refusal(() -> producer.send(new Message(queue.getTopic(), body), queue)));
        scene.fact("goes on", producer.send(Scene.message(queue.getTopic(), "m"), queue).getQueueOffset());
    }

    public void propertiesTooLarge(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        Message message = Scene.message(queue.getTopic(), "m");
        message.putUserProperty("long", "p".repeat(32_768));
        scene.fact("refusal", scene.refusal(() -> scene.producer().send(message, queue)));
        scene.fact("goes on", scene.send(queue, "m").get(0).getQueueOffset());
    }

    public void emptyBodyIsRefusedByTheClient(Scene scene) throws Exception {
        String topic = scene.topic(1);
        scene.fact("refusal", scene.refusal(() -> scene.producer().send(new Message(topic, new byte[0]))));
    }

    /** Sends what the client itself would not, to see what the broker says. */
    private static Map<String, Object> sendRaw(Scene scene, String topic, int queueId) throws Exception {
        SendMessageRequestHeader header = new SendMessageRequestHeader();
        header.setProducerGroup(scene.name("raw-producers"));
        header.setTopic(topic);
        header.setDefaultTopic("TBW102");
        header.setDefaultTopicQueueNums(4);
        header.setQueueId(queueId);
        header.setSysFlag(0);
        header.setBornTimestamp(System.currentTimeMillis());
        header.setFlag(0);
        header.setProperties("UNIQ_KEY\u00010123456789ABCDEF0123456789ABCDEF");
        header.setReconsumeTimes(0);
        header.setUnitMode(false);
        RemotingCommand answer = scene.call(SEND_MESSAGE, header, "m".getBytes());
        String remark = answer.getRemark() == null ? null : answer.getRemark().split("\n")[0];
        return Scene.row("code", answer.getCode(), "remark", remark);
    }

    public void topicWithIllegalName(Scene scene) throws Exception {
        scene.fact("a blank in it", sendRaw(scene, "bad topic", 0));
        scene.fact("too long", sendRaw(scene, "x".repeat(128), 0));
        scene.fact("empty", sendRaw(scene, "", 0));
        scene.fact("client", scene.refusal(() -> scene.producer().send(Scene.message("bad topic", "m"))));
    }

    public void systemTopic(Scene scene) throws Exception {
        for (String topic : new String[] {
            "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest"}) {
            scene.fact(topic, sendRaw(scene, topic, 0).get("code"));
        }
        scene.fact("refusal", sendRaw(scene, "SCHEDULE_TOPIC_XXXX", 0));
    }

    public void queueThatIsNotThere(Scene scene) throws Exception {
        Map<String, Object> refusal = sendRaw(scene, scene.topic(2), 9);
        scene.fact("code", refusal.get("code"));
        // The rest of the text is how Java prints the topic.
        scene.fact("remark", String.valueOf(refusal.get("remark")).split(",")[0]);
    }

    public void negativeQueueIsAnyQueue(Scene scene) throws Exception {
        scene.fact("answer", sendRaw(scene, scene.topic(2), -1));
    }

    /** The broker leaves it to the client, which finds no queue to write to. */
    public void topicThatMayOnlyBeRead(Scene scene) throws Exception {
        String topic = scene.topic(1);
        scene.configure(new TopicConfig(topic, 1, 1, 4));
        scene.fact("client", scene.refusal(() -> scene.producer().send(Scene.message(topic, "m"))));
        scene.fact("broker", sendRaw(scene, topic, 0));
    }

    public void topicThatMayOnlyBeWritten(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m");
        scene.puller();
        scene.configure(new TopicConfig(queue.getTopic(), 1, 1, 2));
        scene.fact("refusal", scene.refusal(() -> scene.puller().pull(queue, "*", 0, 1)));
    }

    public void unknownTopicWithoutTemplate(Scene scene) throws Exception {
        String topic = scene.name("unknown");
        DefaultMQProducer producer = new DefaultMQProducer(scene.name("producers"));
        producer.setCreateTopicKey(scene.name("no-template"));
        scene.start(producer);
        scene.fact("client", scene.refusal(() -> producer.send(Scene.message(topic, "m"))).get("code"));
        // It knows the broker now, and asks it.
        producer.send(Scene.message(scene.topic(1), "m"));
        scene.fact("broker", scene.refusal(() -> producer.send(Scene.message(topic, "m"), scene.queue(topic, 0))));
        scene.fact("made", scene.admin.getAllTopicConfig(scene.address, Scene.TIMEOUT_MS).getTopicConfigTable()
            .containsKey(topic));
    }

    public void refusedSendIsTriedWithOtherQueues(Scene scene) throws Exception {
        String topic = scene.topic(4);
        AtomicInteger tries = new AtomicInteger();
        DefaultMQProducer producer = scene.prepare(new DefaultMQProducer(scene.name("producers")));
        producer.setPollNameServerInterval(600_000);
        producer.setSendMsgTimeout(Scene.TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(4);
        producer.start();
        scene.atEnd(producer::shutdown);
        producer.getDefaultMQProducerImpl().registerSendMessageHook(new SendMessageHook() {
            @Override
            public String hookName() {
                return "tries";
            }

            @Override
            public void sendMessageBefore(SendMessageContext context) {
                tries.incrementAndGet();
            }

            @Override
            public void sendMessageAfter(SendMessageContext context) {}
        });
        producer.send(Scene.message(topic, "m"));
        var sender = producer.getDefaultMQProducerImpl();
        var four = sender.getTopicPublishInfoTable().get(topic);
        scene.configure(new TopicConfig(topic, 1, 1, 6));
        // It knows of four queues, as before it asks the name server again, so it is the broker that says no.
        sender.updateTopicPublishInfo(topic, four);
        scene.fact("first", producer.send(Scene.message(topic, "m")).getMessageQueue().getQueueId());
        tries.set(0);
        sender.updateTopicPublishInfo(topic, four);
        scene.fact("second", producer.send(Scene.message(topic, "m")).getMessageQueue().getQueueId());
        scene.fact("tries of the second", tries.get());
    }

    public void unknownRequestCode(Scene scene) throws Exception {
        RemotingCommand answer = scene.call(9999, null, null);
        scene.fact("code", answer.getCode());
        scene.fact("remark", answer.getRemark());
    }

    public void pullFromUnknownTopic(Scene scene) throws Exception {
        String known = scene.topic(1);
        var puller = scene.puller();
        scene.fact("unknown queue", scene.refusal(() -> puller.pull(scene.queue(known, 7), "*", 0, 1)));
        // It knows the broker now.
        scene.fact("unknown topic", scene.refusal(
            () -> puller.pull(scene.queue(scene.name("unknown"), 0), "*", 0, 1)));
    }
}
