package eruca.interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageId;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** One message at a time. */
final class SendCases {
    private static final int MIB = 1024 * 1024;

    public void syncSend(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        List<Object> statuses = new ArrayList<>();
        List<Long> offsets = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            SendResult result = scene.producer().send(Scene.message(queue.getTopic(), "m" + number));
            statuses.add(result.getSendStatus());
            offsets.add(result.getQueueOffset());
        }
        scene.fact("statuses", statuses);
        scene.fact("offsets", offsets);
        scene.fact("stored", Inbox.bodies(scene.read(queue, 3)));
    }

    public void syncSendTakesQueuesInTurn(Scene scene) throws Exception {
        String topic = scene.topic(4);
        Set<Integer> queues = new TreeSet<>();
        Set<Long> offsets = new TreeSet<>();
        for (int number = 0; number < 4; number++) {
            SendResult result = scene.producer().send(Scene.message(topic, "m" + number));
            queues.add(result.getMessageQueue().getQueueId());
            offsets.add(result.getQueueOffset());
        }
        scene.fact("queues", queues);
        scene.fact("offsets", offsets);
    }

    /** A future for what an asynchronous send is told. */
    static final class Told extends CompletableFuture<SendResult> implements SendCallback {
        @Override
        public void onSuccess(SendResult result) {
            complete(result);
        }

        @Override
        public void onException(Throwable error) {
            completeExceptionally(error);
        }

        SendResult await() throws Exception {
            return get(Scene.DEADLINE_MS, TimeUnit.MILLISECONDS);
        }
    }

    public void asyncSend(Scene scene) throws Exception {
        String topic = scene.topic(1);
        List<Told> waiting = new ArrayList<>();
        for (int number = 0; number < 50; number++) {
            Told told = new Told();
            scene.producer().send(Scene.message(topic, "m" + number), told);
            waiting.add(told);
        }
        Set<Object> statuses = new HashSet<>();
        Set<Long> offsets = new TreeSet<>();
        for (Told told : waiting) {
            statuses.add(told.await().getSendStatus());
            offsets.add(told.await().getQueueOffset());
        }
        scene.fact("statuses", statuses);
        scene.fact("different offsets", offsets.size());
        scene.fact("stored", scene.read(scene.queue(topic, 0), 50).size());
    }

    public void asyncSendToGivenQueue(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(3), 2);
        Told told = new Told();
        scene.producer().send(Scene.message(queue.getTopic(), "m"), queue, told);
        scene.fact("queue", told.await().getMessageQueue().getQueueId());
        scene.fact("stored", Inbox.bodies(scene.read(queue, 1)));
    }

    public void onewaySend(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        for (int number = 0; number < 20; number++) {
            scene.producer().sendOneway(Scene.message(queue.getTopic(), "m" + number));
        }
        Scene.await("20 messages", () -> scene.admin.maxOffset(queue) == 20);
        scene.fact("stored", new HashSet<>(Inbox.bodies(scene.read(queue, 20))).size());
    }

    public void onewaySendToGivenQueue(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(3), 1);
        scene.producer().sendOneway(Scene.message(queue.getTopic(), "m"), queue);
        Scene.await("a message", () -> scene.admin.maxOffset(queue) == 1);
        scene.fact("stored", Inbox.bodies(scene.read(queue, 1)));
    }

    public void selectorByHash(Scene scene) throws Exception {
        String topic = scene.topic(4);
        Map<String, Object> queues = new TreeMap<>();
        for (String order : List.of("a", "b", "c", "a", "b", "c")) {
            SendResult result = scene.producer().send(Scene.message(topic, order), new SelectMessageQueueByHash(), order);
            Object earlier = queues.put(order, result.getMessageQueue().getQueueId());
            if (earlier != null && !earlier.equals(queues.get(order))) {
                throw new IllegalStateException("order " + order + " went to two queues");
            }
        }
        scene.fact("queues", queues);
    }

    public void selectorWithFixedQueue(Scene scene) throws Exception {
        String topic = scene.topic(4);
        Set<Integer> queues = new TreeSet<>();
        for (int number = 0; number < 3; number++) {
            queues.add(scene.producer().send(Scene.message(topic, "m" + number), (all, message, wanted) -> all.stream()
                .filter(queue -> wanted.equals(queue.getQueueId())).findFirst().orElseThrow(), 2)
                .getMessageQueue().getQueueId());
        }
        scene.fact("queues", queues);
        scene.fact("stored", Inbox.bodies(scene.read(scene.queue(topic, 2), 3)));
    }

    public void sendToGivenQueue(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(4), 3);
        SendResult result = scene.send(queue, "m").get(0);
        scene.fact("queue", result.getMessageQueue().getQueueId());
        scene.fact("stored", Inbox.bodies(scene.read(queue, 1)));
    }

    public void unknownTopicIsMade(Scene scene) throws Exception {
        makeTopicBySending(scene, 4);
    }

    public void unknownTopicIsMadeWithNoMoreQueuesThanTheTemplate(Scene scene) throws Exception {
        makeTopicBySending(scene, 64);
    }

    private static void makeTopicBySending(Scene scene, int wanted) throws Exception {
        String topic = scene.name("made");
        scene.producer().setDefaultTopicQueueNums(wanted);
        scene.makeTopic(topic, () -> scene.fact(
            "status", scene.producer().send(Scene.message(topic, "first")).getSendStatus()));
        TopicConfig config = scene.admin.examineTopicConfig(scene.address, topic);
        scene.fact("queues to write", config.getWriteQueueNums());
        scene.fact("queues to read", config.getReadQueueNums());
        scene.fact("permission", config.getPerm());
    }

    public void keysTagsPropertiesAndFlagAreKept(Scene scene) throws Exception {
        String topic = scene.topic(1);
        Message message = Scene.message(topic, "TagA", "body \u00e4\u6d88");
        message.setKeys(Arrays.asList("k1", "k2"));
        message.setFlag(4711);
        message.putUserProperty("plain", "value");
        message.putUserProperty("uni\u6d88", "\u606f \u00df");
        message.putUserProperty("long", "x".repeat(1000));
        message.setBuyerId("buyer");
        SendResult result = scene.producer().send(message);
        MessageExt stored = scene.readOne(scene.queue(topic, 0));
        scene.fact("body", Inbox.text(stored));
        scene.fact("tags", stored.getTags());
        scene.fact("keys", stored.getKeys());
        scene.fact("flag", stored.getFlag());
        Map<String, String> properties = new TreeMap<>(stored.getProperties());
        scene.fact("unique id is the result's", result.getMsgId().equals(properties.remove("UNIQ_KEY")));
        scene.fact("id is the result's", result.getMsgId().equals(stored.getMsgId()));
        properties.put("long", String.valueOf(properties.get("long").length()));
        scene.fact("properties", properties);
        scene.fact("born host is ours", stored.getBornHostString().equals("127.0.0.1"));
        scene.fact("store host is the broker's", scene.address.equals("127.0.0.1:"
            + ((java.net.InetSocketAddress) stored.getStoreHost()).getPort()));
        scene.fact("reconsume times", stored.getReconsumeTimes());
        scene.fact("born before stored", stored.getBornTimestamp() <= stored.getStoreTimestamp());
    }

    public void bodyOfOneByte(Scene scene) throws Exception {
        String topic = scene.topic(1);
        scene.producer().send(new Message(topic, new byte[] {0}));
        scene.fact("body", scene.readOne(scene.queue(topic, 0)).getBody()[0]);
    }

    public void bodyOfAlmostFourMebibytes(Scene scene) throws Exception {
        String topic = scene.topic(1);
        byte[] body = new byte[4 * MIB - 1024];
        new Random(1).nextBytes(body);
        DefaultMQProducer producer = scene.start(plainProducer(scene));
        scene.fact("status", producer.send(new Message(topic, body)).getSendStatus());
        scene.fact("same", Arrays.equals(body, scene.readOne(scene.queue(topic, 0)).getBody()));
    }

    /** A producer that sends bodies as they are. */
    static DefaultMQProducer plainProducer(Scene scene) {
        DefaultMQProducer producer = new DefaultMQProducer(scene.name("plain-producers"));
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setMaxMessageSize(16 * MIB);
        return producer;
    }

    public void propertiesOfAlmostThirtyTwoKibibytes(Scene scene) throws Exception {
        String topic = scene.topic(1);
        Message message = Scene.message(topic, "m");
        message.putUserProperty("long", "p".repeat(32_000));
        scene.producer().send(message);
        scene.fact("length", scene.readOne(scene.queue(topic, 0)).getProperty("long").length());
    }

    public void zlibBody(Scene scene) throws Exception {
        compressed(scene, "ZLIB");
    }

    public void lz4Body(Scene scene) throws Exception {
        compressed(scene, "LZ4");
    }

    public void zstdBody(Scene scene) throws Exception {
        compressed(scene, "ZSTD");
    }

    private static void compressed(Scene scene, String kind) throws Exception {
        String topic = scene.topic(1);
        String body = "all work and no play ".repeat(1000);
        scene.start(producer(scene, kind)).send(Scene.message(topic, body));
        MessageExt pulled = scene.readOne(scene.queue(topic, 0));
        scene.fact("same", Inbox.text(pulled).equals(body));
        scene.fact("stored smaller", pulled.getStoreSize() < body.length() / 10);
        scene.fact("flags", pulled.getSysFlag());
        Inbox inbox = new Inbox();
        scene.consume(scene.name("readers"), topic, "*", inbox);
        scene.fact("same when pushed", Inbox.text(inbox.await(1).get(0)).equals(body));
    }

    private static synchronized DefaultMQProducer producer(Scene scene, String kind) {
        System.setProperty(MixAll.MESSAGE_COMPRESS_TYPE, kind);
        try {
            return new DefaultMQProducer(scene.name("small-producers"));
        } finally {
            System.clearProperty(MixAll.MESSAGE_COMPRESS_TYPE);
        }
    }

    public void vipChannel(Scene scene) throws Exception {
        String topic = scene.topic(1);
        DefaultMQProducer producer = new DefaultMQProducer(scene.name("vip-producers"));
        producer.setVipChannelEnabled(true);
        scene.start(producer);
        scene.fact("status", producer.send(Scene.message(topic, "one")).getSendStatus());
        scene.fact("batch", producer.send(List.of(Scene.message(topic, "two"))).getSendStatus());
        scene.fact("stored", Inbox.bodies(scene.read(scene.queue(topic, 0), 2)));
    }

    public void doesNotWaitForStore(Scene scene) throws Exception {
        String topic = scene.topic(1);
        Message message = Scene.message(topic, "m");
        message.setWaitStoreMsgOK(false);
        scene.fact("status", scene.producer().send(message).getSendStatus());
        scene.fact("WAIT", scene.readOne(scene.queue(topic, 0)).getProperty("WAIT"));
    }

    public void delayedMessageComesNotEarly(Scene scene) throws Exception {
        String topic = scene.topic(1);
        Inbox inbox = new Inbox();
        scene.consume(scene.name("readers"), topic, "*", inbox);
        Message message = Scene.message(topic, "TagA", "late");
        message.setKeys("k");
        message.setDelayTimeLevel(1);
        long before = System.currentTimeMillis();
        SendResult result = scene.producer().send(message);
        MessageExt came = inbox.await(1).get(0);
        long took = System.currentTimeMillis() - before;
        scene.fact("status", result.getSendStatus());
        // Java's broker counts from the time of its last look, some milliseconds before.
        scene.fact("waited a second", took >= 900);
        scene.fact("waited less than six", took < 6000);
        scene.fact("topic", came.getTopic());
        scene.fact("queue", came.getQueueId());
        scene.fact("offset", came.getQueueOffset());
        scene.fact("id is the result's", came.getMsgId().equals(result.getMsgId()));
        Map<String, String> properties = new TreeMap<>(came.getProperties());
        properties.keySet().removeAll(Set.of("UNIQ_KEY", "CONSUME_START_TIME", "MIN_OFFSET", "MAX_OFFSET"));
        scene.fact("properties", properties);
    }

    public void messageIds(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        SendResult result = scene.send(queue, "m").get(0);
        MessageExt stored = scene.readOne(queue);
        MessageId id = MessageDecoder.decodeMessageId(result.getOffsetMsgId());
        scene.fact("unique id is hexadecimal", result.getMsgId().matches("[0-9A-F]+"));
        scene.fact("length of the offset id", result.getOffsetMsgId().length());
        scene.fact("host in the offset id", id.getAddress().toString().replaceFirst("^/", ""));
        scene.fact("position in the offset id is the record's", id.getOffset() == stored.getCommitLogOffset());
    }

    public void resultTellsRegionAndTrace(Scene scene) throws Exception {
        SendResult result = scene.send(scene.queue(scene.topic(1), 0), "m").get(0);
        scene.fact("region", result.getRegionId());
        scene.fact("trace", result.isTraceOn());
        scene.fact("transaction", result.getTransactionId());
        scene.fact("broker", result.getMessageQueue().getBrokerName());
    }

    public void traceIsSent(Scene scene) throws Exception {
        String topic = scene.topic(1);
        String traces = scene.topic("traces", 1);
        DefaultMQProducer producer = scene.start(new DefaultMQProducer(scene.name("traced-producers"), true, traces));
        SendResult result = producer.send(Scene.message(topic, "m"));
        Scene.await("a trace", () -> scene.admin.maxOffset(scene.queue(traces, 0)) == 1);
        MessageExt trace = scene.readOne(scene.queue(traces, 0));
        List<String> fields = Arrays.asList(Inbox.text(trace).split("\u0001"));
        scene.fact("kind", fields.get(0));
        scene.fact("region", fields.get(2));
        scene.fact("topic", fields.get(4));
        scene.fact("has the id", fields.get(5).equals(result.getMsgId()));
        scene.fact("is keyed by the id", trace.getKeys().contains(result.getMsgId()));
    }

    public void namespaces(Scene scene) throws Exception {
        String topic = scene.name("topic");
        String space = scene.name("space");
        scene.configure(new TopicConfig(space + "%" + topic, 1, 1, 6));
        DefaultMQProducer producer = scene.start(new DefaultMQProducer(space, scene.name("producers")));
        SendResult result = producer.send(Scene.message(topic, "m"));
        scene.fact("sent to", result.getMessageQueue().getTopic());
        MessageExt stored = scene.readOne(scene.queue(space + "%" + topic, 0));
        scene.fact("stored as", stored.getTopic());
        scene.fact("instance", stored.getProperty("INSTANCE_ID"));
    }

    /** Everything a client says and hears in the other header type; this case is run by a process that uses it. */
    public void binaryHeaders(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.fact("type", RemotingCommand.getSerializeTypeConfigInThisServer());
        Message message = Scene.message(queue.getTopic(), "TagA", "one");
        message.setKeys("key");
        message.putUserProperty("p", "\u6d88");
        scene.fact("status", scene.producer().send(message).getSendStatus());
        scene.producer().send(List.of(Scene.message(queue.getTopic(), "two"), Scene.message(queue.getTopic(), "three")));
        Inbox inbox = new Inbox();
        scene.consume(scene.name("readers"), queue.getTopic(), "*", inbox);
        List<MessageExt> came = inbox.await(3);
        scene.fact("came", Inbox.sorted(came));
        scene.fact("property", scene.read(queue, 3).get(0).getProperty("p"));
        scene.awaitCommitted(scene.name("readers"), queue, 3);
        scene.fact("queue bounds", List.of(scene.admin.minOffset(queue), scene.admin.maxOffset(queue)));
        scene.fact("refusal", scene.refusal(() -> scene.producer().send(
            Scene.message(queue.getTopic(), "m"), scene.queue(queue.getTopic(), 9))).get("code"));
        Scene.await("the index", () -> QueryCases.find(scene, queue.getTopic(), "key").size() == 1);
        scene.fact("by key", Inbox.bodies(QueryCases.find(scene, queue.getTopic(), "key")));
    }
}
