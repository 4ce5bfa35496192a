package eruca.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Push consumers that do not care for order. */
final class PushCases {
    private static final int NOTIFY_CONSUMER_IDS_CHANGED = 40;

    /** The queues a consumer has now. */
    static Set<Integer> queuesOf(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(topic)).map(MessageQueue::getQueueId)
            .collect(Collectors.toCollection(TreeSet::new));
    }

    static void awaitQueues(DefaultMQPushConsumer consumer, String topic, int count) throws Exception {
        Scene.await(count + " queues", () -> queuesOf(consumer, topic).size() == count);
    }

    public void pushInACluster(Scene scene) throws Exception {
        String topic = scene.topic(4);
        scene.sendMany(topic, 4, "early", 8);
        Inbox inbox = new Inbox();
        scene.consume(scene.name("readers"), topic, "*", inbox);
        inbox.await(8);
        scene.sendMany(topic, 4, "late", 8);
        List<MessageExt> came = inbox.await(16);
        scene.fact("came", Inbox.sorted(came));
        scene.fact("queues", came.stream().map(MessageExt::getQueueId).collect(Collectors.toCollection(TreeSet::new)));
    }

    public void pushBringsMessagesAtOnce(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        Inbox inbox = new Inbox();
        scene.consume(scene.name("readers"), queue.getTopic(), "*", inbox);
        scene.send(queue, "warm");
        inbox.await(1);
        long longest = 0;
        for (int number = 1; number <= 10; number++) {
            long before = System.nanoTime();
            scene.send(queue, "m" + number);
            inbox.await(number + 1);
            longest = Math.max(longest, System.nanoTime() - before);
        }
        // A poll that is not woken up waits for seconds.
        scene.fact("at once", longest < 3_000_000_000L);
    }

    public void twoConsumersShareQueues(Scene scene) throws Exception {
        String topic = scene.topic(4);
        String group = scene.name("readers");
        Inbox ours = new Inbox();
        Inbox theirs = new Inbox();
        DefaultMQPushConsumer first = scene.consume(group, topic, "*", ours);
        awaitQueues(first, topic, 4);
        DefaultMQPushConsumer second = scene.consume(group, topic, "*", theirs);
        awaitQueues(first, topic, 2);
        awaitQueues(second, topic, 2);
        scene.sendMany(topic, 4, "m", 20);
        Scene.await("20 messages", () -> ours.all().size() + theirs.all().size() >= 20);
        List<MessageExt> both = ours.all();
        both.addAll(theirs.all());
        scene.fact("came", new TreeSet<>(Inbox.bodies(both)).size());
        scene.fact("to each", List.of(ours.all().size(), theirs.all().size()));
    }

    public void groupIsToldOfANewMember(Scene scene) throws Exception {
        String topic = scene.topic(2);
        String group = scene.name("readers");
        AtomicInteger told = new AtomicInteger();
        List<String> groups = new ArrayList<>();
        DefaultMQPushConsumer first = scene.consumer(group, new RPCHook() {
            @Override
            public void doBeforeRequest(String address, RemotingCommand request) {
                if (request.getCode() == NOTIFY_CONSUMER_IDS_CHANGED && !request.isResponseType()) {
                    groups.add(request.getExtFields().get("consumerGroup"));
                    told.incrementAndGet();
                }
            }

            @Override
            public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {}
        });
        first.subscribe(topic, "*");
        first.registerMessageListener(Scene.into(new Inbox()));
        scene.start(first);
        awaitQueues(first, topic, 2);
        int before = told.get();
        DefaultMQPushConsumer second = scene.consume(group, topic, "*", new Inbox());
        Scene.await("a word of the new member", () -> told.get() > before);
        awaitQueues(first, topic, 1);
        int between = told.get();
        second.shutdown();
        Scene.await("a word of the lost member", () -> told.get() > between);
        scene.fact("told of", groups.get(groups.size() - 1));
    }

    public void consumerThatLeavesIsReplaced(Scene scene) throws Exception {
        String topic = scene.topic(4);
        String group = scene.name("readers");
        Inbox ours = new Inbox();
        DefaultMQPushConsumer first = scene.consume(group, topic, "*", ours);
        DefaultMQPushConsumer second = scene.consume(group, topic, "*", new Inbox());
        awaitQueues(first, topic, 2);
        awaitQueues(second, topic, 2);
        second.shutdown();
        awaitQueues(first, topic, 4);
        scene.sendMany(topic, 4, "m", 8);
        scene.fact("came", Inbox.sorted(ours.await(8)));
    }

    public void broadcastToTwo(Scene scene) throws Exception {
        String topic = scene.topic(2);
        String group = scene.name("listeners");
        List<Inbox> inboxes = List.of(new Inbox(), new Inbox());
        for (Inbox inbox : inboxes) {
            DefaultMQPushConsumer consumer = scene.consumer(group);
            consumer.setMessageModel(MessageModel.BROADCASTING);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener(Scene.into(inbox));
            scene.start(consumer);
            awaitQueues(consumer, topic, 2);
        }
        // One that broadcasts begins behind the last message, so there is something to wait for before.
        Scene.await("all to listen", () -> {
            scene.sendMany(topic, 2, "try", 2);
            return inboxes.stream().allMatch(inbox -> inbox.all().size() >= 2);
        });
        scene.sendMany(topic, 2, "m", 6);
        for (Inbox inbox : inboxes) {
            for (int number = 0; number < 6; number++) {
                inbox.await("m" + number);
            }
            scene.fact("came to " + inboxes.indexOf(inbox), Inbox.sorted(inbox.all()).stream()
                .filter(body -> body.startsWith("m")).collect(Collectors.toList()));
        }
        scene.fact("offset at the broker", scene.committed(group, scene.queue(topic, 0)) <= 0);
    }

    private static void subscribe(Scene scene, String tags) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        for (String tag : List.of("A", "B", "C", "AB", "A")) {
            scene.send(queue, Scene.message(queue.getTopic(), tag, tag.toLowerCase()));
        }
        scene.send(queue, "none");
        for (String tag : List.of("C", "B", "A")) {
            scene.send(queue, Scene.message(queue.getTopic(), tag, "last " + tag));
        }
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.consumer(scene.name("readers"));
        consumer.subscribe(queue.getTopic(), tags);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.registerMessageListener(Scene.into(inbox));
        scene.start(consumer);
        scene.fact("came", Inbox.bodies(inbox.await("last A")));
        scene.awaitCommitted(scene.name("readers"), queue, 9);
    }

    public void subscribeToOneTag(Scene scene) throws Exception {
        subscribe(scene, "A");
    }

    public void subscribeToTwoTags(Scene scene) throws Exception {
        subscribe(scene, "A || B");
    }

    public void subscribeToAll(Scene scene) throws Exception {
        subscribe(scene, "*");
    }

    public void tagsWithTheSameHash(Scene scene) throws Exception {
        // "Aa" and "BB" have one hash in Java, so the broker gives both and the client drops one.
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        for (String tag : List.of("Aa", "BB", "Aa")) {
            scene.send(queue, Scene.message(queue.getTopic(), tag, "is " + tag));
        }
        Inbox inbox = new Inbox();
        scene.consume(scene.name("readers"), queue.getTopic(), "Aa", inbox);
        inbox.await(2);
        scene.awaitCommitted(scene.name("readers"), queue, 3);
        scene.fact("came", Inbox.bodies(inbox.all()));
    }

    public void subscriptionChanges(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.consume(scene.name("readers"), queue.getTopic(), "A", inbox);
        scene.send(queue, Scene.message(queue.getTopic(), "B", "b1"));
        scene.send(queue, Scene.message(queue.getTopic(), "A", "a1"));
        inbox.await("a1");
        consumer.subscribe(queue.getTopic(), "B");
        Scene.await("the new subscription", () -> scene.admin.examineConsumerConnectionInfo(scene.name("readers"))
            .getSubscriptionTable().get(queue.getTopic()).getSubString().equals("B"));
        Scene.await("a message with the new tag", () -> {
            scene.send(queue, Scene.message(queue.getTopic(), "B", "b2"));
            return Inbox.bodies(inbox.all()).contains("b2");
        });
        scene.fact("came", new TreeSet<>(Inbox.bodies(inbox.all())));
    }

    private static void beginAt(Scene scene, ConsumeFromWhere where) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "old0", "old1");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.consumer(scene.name("readers"));
        consumer.setConsumeFromWhere(where);
        consumer.setConsumeTimestamp(UtilAll.timeMillisToHumanString3(System.currentTimeMillis() + 60_000));
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(queue.getTopic(), "*");
        consumer.registerMessageListener(Scene.into(inbox));
        scene.start(consumer);
        awaitQueues(consumer, queue.getTopic(), 1);
        Scene.await("a new message", () -> {
            scene.send(queue, "new");
            return Inbox.bodies(inbox.all()).contains("new");
        });
        scene.fact("came", new TreeSet<>(Inbox.bodies(inbox.all())));
    }

    public void beginAtTheFirst(Scene scene) throws Exception {
        beginAt(scene, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    }

    /** The broker lets a new group begin with the first as long as the queue still has it in memory. */
    public void beginAtTheLast(Scene scene) throws Exception {
        beginAt(scene, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
    }

    public void beginAtATime(Scene scene) throws Exception {
        beginAt(scene, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
    }

    public void restartGoesOnWhereItStopped(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        String group = scene.name("readers");
        scene.send(queue, "m0", "m1", "m2");
        Inbox first = new Inbox();
        DefaultMQPushConsumer consumer = scene.consume(group, queue.getTopic(), "*", first);
        first.await(3);
        Scene.await("the listener to be done", () -> consumer.getDefaultMQPushConsumerImpl().getOffsetStore()
            .readOffset(queue, ReadOffsetType.READ_FROM_MEMORY) == 3);
        consumer.shutdown();
        scene.fact("offset at shutdown", scene.committed(group, queue));
        scene.send(queue, "m3", "m4");
        Inbox second = new Inbox();
        scene.consume(group, queue.getTopic(), "*", second);
        scene.fact("came after", Inbox.sorted(second.await(2)));
    }

    public void suspendAndResume(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.consume(scene.name("readers"), queue.getTopic(), "*", inbox);
        scene.send(queue, "m0");
        inbox.await(1);
        consumer.suspend();
        // A pull that is out already may still bring something.
        scene.send(queue, "m1");
        scene.send(queue, "m2");
        consumer.resume();
        scene.fact("came", Inbox.sorted(inbox.await(3)));
    }

    public void orderInsideAQueue(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.awaitSeen(scene.producer().send(bodies(queue.getTopic(), 200), queue));
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.consumer(scene.name("readers"));
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(queue.getTopic(), "*");
        consumer.registerMessageListener(Scene.into(inbox));
        scene.start(consumer);
        List<Long> offsets = inbox.await(200).stream().map(MessageExt::getQueueOffset).collect(Collectors.toList());
        List<Long> ordered = new ArrayList<>(offsets);
        ordered.sort(null);
        scene.fact("count", offsets.size());
        scene.fact("in order", offsets.equals(ordered));
    }

    private static List<org.apache.rocketmq.common.message.Message> bodies(String topic, int count) {
        List<org.apache.rocketmq.common.message.Message> messages = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            messages.add(Scene.message(topic, "m" + number));
        }
        return messages;
    }

    public void listenerTakesMany(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.awaitSeen(scene.producer().send(bodies(queue.getTopic(), 64), queue));
        Inbox inbox = new Inbox();
        AtomicInteger most = new AtomicInteger();
        DefaultMQPushConsumer consumer = scene.consumer(scene.name("readers"));
        consumer.setConsumeMessageBatchMaxSize(16);
        consumer.subscribe(queue.getTopic(), "*");
        consumer.registerMessageListener((List<MessageExt> messages,
            org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext context) -> {
            most.accumulateAndGet(messages.size(), Math::max);
            inbox.add(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        scene.start(consumer);
        scene.fact("count", inbox.await(64).size());
        scene.fact("most at once", most.get());
        scene.awaitCommitted(scene.name("readers"), queue, 64);
    }

    public void twoTopicsOneGroup(Scene scene) throws Exception {
        String one = scene.topic("one", 1);
        String two = scene.topic("two", 2);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.consumer(scene.name("readers"));
        consumer.subscribe(one, "*");
        consumer.subscribe(two, "A");
        consumer.registerMessageListener(Scene.into(inbox));
        scene.start(consumer);
        scene.producer().send(Scene.message(one, "x", "one"));
        scene.producer().send(Scene.message(two, "B", "no"), scene.queue(two, 1));
        scene.producer().send(Scene.message(two, "A", "two"), scene.queue(two, 1));
        scene.fact("came", Inbox.sorted(inbox.await(2)));
    }

    public void twoGroupsGetEverything(Scene scene) throws Exception {
        String topic = scene.topic(2);
        Inbox one = new Inbox();
        Inbox two = new Inbox();
        scene.consume(scene.name("one"), topic, "*", one);
        scene.consume(scene.name("two"), topic, "*", two);
        scene.sendMany(topic, 2, "m", 6);
        scene.fact("one", Inbox.sorted(one.await(6)));
        scene.fact("two", Inbox.sorted(two.await(6)));
    }

    public void topicGrowsWhileConsumed(Scene scene) throws Exception {
        String topic = scene.topic(1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.consume(scene.name("readers"), topic, "*", inbox);
        awaitQueues(consumer, topic, 1);
        scene.configure(new org.apache.rocketmq.common.TopicConfig(topic, 3, 3, 6));
        awaitQueues(consumer, topic, 3);
        scene.sendMany(topic, 3, "m", 3);
        scene.fact("came", Inbox.sorted(inbox.await(3)));
    }
}
