package eruca.interop;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.body.LockBatchRequestBody;
import org.apache.rocketmq.common.protocol.body.UnlockBatchRequestBody;

/** Push consumers that take the messages of a queue in order. */
final class OrderlyCases {
    private static DefaultMQPushConsumer consume(Scene scene, String topic, MessageListenerOrderly listener)
        throws Exception {
        DefaultMQPushConsumer consumer = scene.consumer(scene.name("readers"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(listener);
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        return scene.start(consumer);
    }

    private static MessageListenerOrderly into(Inbox inbox) {
        return (messages, context) -> {
            inbox.add(messages);
            return ConsumeOrderlyStatus.SUCCESS;
        };
    }

    public void orderlyOneQueue(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.sendMany(queue.getTopic(), 1, "m", 20);
        Inbox inbox = new Inbox();
        consume(scene, queue.getTopic(), into(inbox));
        scene.fact("came", Inbox.bodies(inbox.await(20)));
        scene.awaitCommitted(scene.name("readers"), queue, 20);
    }

    public void orderlyEachQueue(Scene scene) throws Exception {
        String topic = scene.topic(4);
        Inbox inbox = new Inbox();
        AtomicInteger inside = new AtomicInteger();
        Map<Integer, Integer> busy = new ConcurrentHashMap<>();
        consume(scene, topic, (messages, context) -> {
            int queue = messages.get(0).getQueueId();
            if (busy.merge(queue, 1, Integer::sum) > 1) {
                inside.incrementAndGet();
            }
            inbox.add(messages);
            busy.merge(queue, -1, Integer::sum);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        scene.sendMany(topic, 4, "m", 40);
        Map<Integer, List<Long>> offsets = new TreeMap<>(inbox.await(40).stream().collect(Collectors.groupingBy(
            MessageExt::getQueueId, Collectors.mapping(MessageExt::getQueueOffset, Collectors.toList()))));
        scene.fact("offsets", offsets);
        scene.fact("two at a time in a queue", inside.get());
    }

    public void orderlyTriesAgainBeforeTheNext(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m0", "m1", "m2");
        Inbox inbox = new Inbox();
        AtomicInteger failures = new AtomicInteger(2);
        consume(scene, queue.getTopic(), (List<MessageExt> messages, ConsumeOrderlyContext context) -> {
            inbox.add(messages);
            boolean fails = Inbox.text(messages.get(0)).equals("m1") && failures.getAndDecrement() > 0;
            return fails ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        scene.fact("came", Inbox.bodies(inbox.await(5)));
        scene.awaitCommitted(scene.name("readers"), queue, 3);
    }

    public void orderlyGivesUp(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "bad", "good");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.consumer(scene.name("readers"));
        consumer.setMaxReconsumeTimes(0);
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.subscribe(queue.getTopic(), "*");
        consumer.registerMessageListener((List<MessageExt> messages, ConsumeOrderlyContext context) -> {
            inbox.add(messages);
            return Inbox.text(messages.get(0)).equals("bad")
                ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        scene.start(consumer);
        inbox.await("good");
        scene.awaitCommitted(scene.name("readers"), queue, 2);
        scene.fact("came", Inbox.bodies(inbox.all()));
        // The client sends it to the retry topic with a delay of ten seconds, which the broker keeps.
        MessageQueue dead = scene.queue(MixAll.getDLQTopic(scene.name("readers")), 0);
        Scene.await("the dead letter's topic", () -> scene.queuesOf(dead.getTopic()) > 0);
        Scene.await("the dead letter", () -> scene.admin.maxOffset(dead) == 1);
    }

    public void orderlyTakesOverFromOneThatLeaves(Scene scene) throws Exception {
        String topic = scene.topic(2);
        Inbox first = new Inbox();
        Inbox second = new Inbox();
        DefaultMQPushConsumer leaving = consume(scene, topic, into(first));
        PushCases.awaitQueues(leaving, topic, 2);
        scene.sendMany(topic, 2, "early", 4);
        first.await(4);
        DefaultMQPushConsumer staying = consume(scene, topic, into(second));
        PushCases.awaitQueues(leaving, topic, 1);
        PushCases.awaitQueues(staying, topic, 1);
        leaving.shutdown();
        PushCases.awaitQueues(staying, topic, 2);
        scene.sendMany(topic, 2, "late", 4);
        scene.fact("early", Inbox.sorted(first.all()));
        scene.fact("late", new TreeSet<>(Inbox.bodies(second.await(4))));
    }

    public void locks(Scene scene) throws Exception {
        String topic = scene.topic(2);
        String group = scene.name("lockers");
        var api = scene.producer().getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        Set<MessageQueue> both = Set.of(scene.queue(topic, 0), scene.queue(topic, 1));
        LockBatchRequestBody lock = new LockBatchRequestBody();
        lock.setConsumerGroup(group);
        lock.setClientId("one");
        lock.setMqSet(Set.of(scene.queue(topic, 0)));
        scene.fact("one locks the first", numbers(api.lockBatchMQ(scene.address, lock, Scene.TIMEOUT_MS)));
        lock.setClientId("two");
        lock.setMqSet(both);
        scene.fact("two locks what is left", numbers(api.lockBatchMQ(scene.address, lock, Scene.TIMEOUT_MS)));
        UnlockBatchRequestBody unlock = new UnlockBatchRequestBody();
        unlock.setConsumerGroup(group);
        unlock.setClientId("two");
        unlock.setMqSet(both);
        api.unlockBatchMQ(scene.address, unlock, Scene.TIMEOUT_MS, false);
        lock.setClientId("three");
        scene.fact("the first stays locked", numbers(api.lockBatchMQ(scene.address, lock, Scene.TIMEOUT_MS)));
        unlock.setClientId("one");
        api.unlockBatchMQ(scene.address, unlock, Scene.TIMEOUT_MS, false);
        scene.fact("until its owner lets go", numbers(api.lockBatchMQ(scene.address, lock, Scene.TIMEOUT_MS)));
        lock.setConsumerGroup(scene.name("others"));
        lock.setClientId("one");
        scene.fact("another group", numbers(api.lockBatchMQ(scene.address, lock, Scene.TIMEOUT_MS)));
    }

    private static Set<Integer> numbers(Set<MessageQueue> queues) {
        return queues.stream().map(MessageQueue::getQueueId).collect(Collectors.toCollection(TreeSet::new));
    }
}
