package eruca.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages that a listener did not manage, and what becomes of them. */
final class RetryCases {
    /** A consumer that fails until a message has come so often, and asks for it again after a second. */
    private static DefaultMQPushConsumer stubborn(Scene scene, String topic, Inbox inbox, int failures, int level)
        throws Exception {
        DefaultMQPushConsumer consumer = scene.consumer(scene.name("readers"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
            inbox.add(messages);
            context.setDelayLevelWhenNextConsume(level);
            return messages.get(0).getReconsumeTimes() < failures
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    public void reconsumeLater(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        String group = scene.name("readers");
        Inbox inbox = new Inbox();
        scene.start(stubborn(scene, queue.getTopic(), inbox, 2, 1));
        Message message = Scene.message(queue.getTopic(), "TagA", "again");
        message.setKeys("k");
        message.setFlag(3);
        message.putUserProperty("mine", "kept");
        SendResult result = scene.producer().send(message, queue);
        List<MessageExt> came = inbox.await(3);
        scene.fact("reconsume times", came.stream().map(MessageExt::getReconsumeTimes).collect(Collectors.toList()));
        scene.fact("topics", came.stream().map(MessageExt::getTopic).collect(Collectors.toSet()));
        scene.fact("bodies", Inbox.bodies(came));
        scene.fact("keeps its id", came.stream().allMatch(one -> one.getMsgId().equals(result.getMsgId())));
        Map<String, String> properties = new TreeMap<>(came.get(2).getProperties());
        scene.fact("origin is the first record",
            result.getOffsetMsgId().equals(properties.remove("ORIGIN_MESSAGE_ID")));
        properties.keySet().removeAll(java.util.Set.of("UNIQ_KEY", "CONSUME_START_TIME"));
        scene.fact("properties", properties);
        scene.fact("flag", came.get(2).getFlag());
        scene.fact("born as before", came.get(2).getBornTimestamp() == came.get(0).getBornTimestamp());
        scene.awaitCommitted(group, queue, 1);
        scene.awaitCommitted(group, scene.queue(MixAll.getRetryTopic(group), 0), 2);
        TopicConfig retry = scene.admin.examineTopicConfig(scene.address, MixAll.getRetryTopic(group));
        scene.fact("retry topic", Scene.row("queues", retry.getWriteQueueNums(), "permission", retry.getPerm()));
    }

    public void retriesEndAsDeadLetter(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = stubborn(scene, queue.getTopic(), inbox, 99, 1);
        consumer.setMaxReconsumeTimes(1);
        scene.start(consumer);
        SendResult result = scene.send(queue, "hopeless").get(0);
        inbox.await(2);
        readDeadLetter(scene, result);
        scene.fact("tries", inbox.all().size());
    }

    public void deadLetterAtOnce(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        Inbox inbox = new Inbox();
        scene.start(stubborn(scene, queue.getTopic(), inbox, 99, -1));
        SendResult result = scene.send(queue, "hopeless").get(0);
        inbox.await(1);
        readDeadLetter(scene, result);
        scene.fact("tries", inbox.all().size());
    }

    private static void readDeadLetter(Scene scene, SendResult result) throws Exception {
        MessageQueue dead = scene.queue(MixAll.getDLQTopic(scene.name("readers")), 0);
        Scene.await("the dead letter's topic", () -> scene.queuesOf(dead.getTopic()) > 0);
        Scene.await("the dead letter", () -> scene.admin.maxOffset(dead) == 1);
        TopicConfig config = scene.admin.examineTopicConfig(scene.address, dead.getTopic());
        scene.fact("topic", Scene.row(
            "name", dead.getTopic(), "queues", config.getWriteQueueNums(), "permission", config.getPerm()));
        if ((config.getPerm() & 4) == 0) {
            scene.configure(new TopicConfig(dead.getTopic(), 1, 1, 6));
        }
        MessageExt letter = scene.readOne(dead);
        scene.fact("body", Inbox.text(letter));
        scene.fact("reconsume times", letter.getReconsumeTimes());
        scene.fact("keeps its id", letter.getMsgId().equals(result.getMsgId()));
        Map<String, String> properties = new TreeMap<>(letter.getProperties());
        properties.keySet().removeAll(java.util.Set.of("UNIQ_KEY", "MIN_OFFSET", "MAX_OFFSET"));
        scene.fact("origin is the first record",
            result.getOffsetMsgId().equals(properties.remove("ORIGIN_MESSAGE_ID")));
        scene.fact("properties", properties);
    }

    public void partOfABatchIsRetried(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            messages.add(Scene.message(queue.getTopic(), "m" + number));
        }
        scene.awaitSeen(scene.producer().send(messages, queue));
        Inbox inbox = new Inbox();
        AtomicBoolean first = new AtomicBoolean(true);
        DefaultMQPushConsumer consumer = scene.consumer(scene.name("readers"));
        consumer.setConsumeMessageBatchMaxSize(4);
        consumer.subscribe(queue.getTopic(), "*");
        consumer.registerMessageListener((List<MessageExt> some, ConsumeConcurrentlyContext context) -> {
            inbox.add(some);
            context.setDelayLevelWhenNextConsume(1);
            if (first.getAndSet(false)) {
                context.setAckIndex(1);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        scene.start(consumer);
        List<MessageExt> came = inbox.await(6);
        scene.fact("again", new TreeSet<>(Inbox.bodies(came.subList(4, 6))));
    }

    public void sendBackByAPullConsumer(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        String group = scene.name("pullers");
        scene.send(queue, "m");
        DefaultMQPullConsumer puller = scene.puller();
        MessageExt message = puller.pull(queue, "*", 0, 1).getMsgFoundList().get(0);
        puller.sendMessageBack(message, 1);
        MessageQueue retry = scene.queue(MixAll.getRetryTopic(group), 0);
        Scene.await("the retry topic", () -> scene.queuesOf(retry.getTopic()) > 0);
        Scene.await("the message", () -> scene.admin.maxOffset(retry) == 1);
        MessageExt again = scene.readOne(retry);
        scene.fact("reconsume times", again.getReconsumeTimes());
        scene.fact("from", again.getProperty("RETRY_TOPIC"));
    }

    public void groupSetsRetries(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        var group = new org.apache.rocketmq.common.subscription.SubscriptionGroupConfig();
        group.setGroupName(scene.name("readers"));
        group.setRetryMaxTimes(0);
        group.setRetryQueueNums(3);
        scene.admin.createAndUpdateSubscriptionGroupConfig(scene.address, group);
        Inbox inbox = new Inbox();
        // The client tells its own number with each message it sends back; 16 unless it was set.
        DefaultMQPushConsumer consumer = stubborn(scene, queue.getTopic(), inbox, 1, 1);
        scene.start(consumer);
        scene.send(queue, "m");
        inbox.await(2);
        TopicConfig retry = scene.admin.examineTopicConfig(scene.address, MixAll.getRetryTopic(group.getGroupName()));
        scene.fact("queues of the retry topic", retry.getWriteQueueNums());
        scene.fact("tries", inbox.all().size());
    }
}
