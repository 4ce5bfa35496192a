package eruca.interop;

import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.body.ConsumeMessageDirectlyResult;
import org.apache.rocketmq.common.protocol.body.ConsumerConnection;
import org.apache.rocketmq.common.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;

/** What an administrator does with groups and their members. */
final class GroupCases {
    private static Map<String, Object> describe(SubscriptionGroupConfig config) {
        return Scene.row(
            "enabled", config.isConsumeEnable(), "from min", config.isConsumeFromMinEnable(),
            "broadcast", config.isConsumeBroadcastEnable(), "retry queues", config.getRetryQueueNums(),
            "retries", config.getRetryMaxTimes(), "broker", config.getBrokerId(),
            "broker when slow", config.getWhichBrokerWhenConsumeSlowly(),
            "tells of changes", config.isNotifyConsumerIdsChangedEnable());
    }

    public void createGroup(Scene scene) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(scene.name("group"));
        config.setRetryMaxTimes(3);
        config.setRetryQueueNums(2);
        config.setConsumeBroadcastEnable(false);
        scene.admin.createAndUpdateSubscriptionGroupConfig(scene.address, config);
        scene.fact("made", describe(scene.admin.examineSubscriptionGroupConfig(scene.address, config.getGroupName())));
        config.setRetryMaxTimes(5);
        scene.admin.createAndUpdateSubscriptionGroupConfig(scene.address, config);
        scene.fact("changed",
            describe(scene.admin.examineSubscriptionGroupConfig(scene.address, config.getGroupName())));
    }

    public void groupIsMadeByItsFirstConsumer(Scene scene) throws Exception {
        String topic = scene.topic(1);
        String group = scene.name("readers");
        Inbox inbox = new Inbox();
        scene.consume(group, topic, "*", inbox);
        Scene.await("the group", () -> scene.admin.getAllSubscriptionGroup(scene.address, Scene.TIMEOUT_MS)
            .getSubscriptionGroupTable().containsKey(group));
        scene.fact("made", describe(scene.admin.examineSubscriptionGroupConfig(scene.address, group)));
    }

    public void deleteGroup(Scene scene) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(scene.name("group"));
        scene.admin.createAndUpdateSubscriptionGroupConfig(scene.address, config);
        scene.admin.deleteSubscriptionGroup(scene.address, config.getGroupName());
        scene.fact("there", scene.admin.getAllSubscriptionGroup(scene.address, Scene.TIMEOUT_MS)
            .getSubscriptionGroupTable().containsKey(config.getGroupName()));
    }

    public void deleteGroupAndItsOffsets(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        String group = scene.name("readers");
        scene.send(queue, "m0", "m1");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.consume(group, queue.getTopic(), "*", inbox);
        inbox.await(2);
        scene.awaitCommitted(group, queue, 2);
        consumer.shutdown();
        scene.admin.deleteSubscriptionGroup(scene.address, group, true);
        scene.fact("offset", scene.committed(group, queue));
    }

    public void disabledGroupGetsNothing(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m");
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(scene.name("pullers"));
        config.setConsumeEnable(false);
        scene.admin.createAndUpdateSubscriptionGroupConfig(scene.address, config);
        scene.fact("refusal", scene.refusal(() -> scene.puller().pull(queue, "*", 0, 1)));
        config.setConsumeEnable(true);
        scene.admin.createAndUpdateSubscriptionGroupConfig(scene.address, config);
        scene.fact("enabled", Inbox.bodies(scene.puller().pull(queue, "*", 0, 1).getMsgFoundList()));
    }

    public void consumerConnection(Scene scene) throws Exception {
        String topic = scene.topic(1);
        String group = scene.name("readers");
        DefaultMQPushConsumer consumer = scene.consume(group, topic, "A || B", new Inbox());
        PushCases.awaitQueues(consumer, topic, 1);
        ConsumerConnection connection = scene.admin.examineConsumerConnectionInfo(group);
        scene.fact("members", connection.getConnectionSet().stream().map(member -> Scene.row(
            "is the consumer", member.getClientId().equals(consumer.buildMQClientId()),
            "language", member.getLanguage(), "version", member.getVersion(),
            "host", member.getClientAddr().split(":")[0])).collect(Collectors.toList()));
        scene.fact("type", connection.getConsumeType());
        scene.fact("model", connection.getMessageModel());
        scene.fact("from", connection.getConsumeFromWhere());
        Map<String, Object> subscriptions = new TreeMap<>();
        for (SubscriptionData data : connection.getSubscriptionTable().values()) {
            subscriptions.put(data.getTopic(), Scene.row("expression", data.getSubString(),
                "tags", new TreeSet<>(data.getTagsSet()), "codes", new TreeSet<>(data.getCodeSet()),
                "type", data.getExpressionType()));
        }
        scene.fact("subscriptions", subscriptions);
        consumer.shutdown();
        Scene.await("no member", () -> {
            try {
                return scene.admin.examineConsumerConnectionInfo(group).getConnectionSet().isEmpty();
            } catch (org.apache.rocketmq.client.exception.MQBrokerException
                | org.apache.rocketmq.client.exception.MQClientException none) {
                return true;
            }
        });
        scene.fact("gone", scene.refusal(() -> scene.admin.examineConsumerConnectionInfo(group)).get("code"));
    }

    public void producerConnection(Scene scene) throws Exception {
        String topic = scene.topic(1);
        scene.send(scene.queue(topic, 0), "m");
        Scene.await("the heartbeat", () -> {
            try {
                return !scene.admin.examineProducerConnectionInfo(scene.name("producers"), topic)
                    .getConnectionSet().isEmpty();
            } catch (org.apache.rocketmq.client.exception.MQBrokerException none) {
                return false;
            }
        });
        scene.fact("members", scene.admin.examineProducerConnectionInfo(scene.name("producers"), topic)
            .getConnectionSet().stream().map(member -> Scene.row("language", member.getLanguage(), "version",
                member.getVersion(), "host", member.getClientAddr().split(":")[0])).collect(Collectors.toList()));
        scene.fact("unknown",
            scene.refusal(() -> scene.admin.examineProducerConnectionInfo(scene.name("unknown"), topic)).get("code"));
        scene.fact("of all", scene.admin.getAllProducerInfo(scene.address).getData()
            .get(scene.name("producers")).size());
    }

    public void consumerTellsWhatItDoes(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        String group = scene.name("readers");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.consume(group, queue.getTopic(), "*", inbox);
        scene.send(queue, "m0", "m1");
        inbox.await(2);
        ConsumerRunningInfo info = scene.admin.getConsumerRunningInfo(group, consumer.buildMQClientId(), false);
        scene.fact("subscriptions",
            info.getSubscriptionSet().stream().map(SubscriptionData::getTopic).collect(Collectors.toList()));
        scene.fact("queues", info.getMqTable().keySet().stream().filter(one -> one.equals(queue)).count());
        Properties properties = info.getProperties();
        scene.fact("type", properties.getProperty("PROP_CONSUME_TYPE"));
        scene.fact("ordered", properties.getProperty("PROP_CONSUMEORDERLY"));
        scene.fact("threads", scene.admin.getConsumerRunningInfo(group, consumer.buildMQClientId(), true)
            .getJstack().contains("Thread"));
        scene.fact("unknown", scene.refusal(
            () -> scene.admin.getConsumerRunningInfo(group, "no-such-client", false)));
    }

    public void messageIsConsumedDirectly(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        String group = scene.name("readers");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.consume(group, queue.getTopic(), "*", inbox);
        SendResult sent = scene.send(queue, "m").get(0);
        inbox.await(1);
        ConsumeMessageDirectlyResult result =
            scene.admin.consumeMessageDirectly(group, consumer.buildMQClientId(), sent.getOffsetMsgId());
        scene.fact("result", result.getConsumeResult());
        scene.fact("ordered", result.isOrder());
        scene.fact("came", Inbox.bodies(inbox.await(2)));
    }

    public void whoHasConsumedAMessage(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        SendResult sent = scene.send(queue, "m").get(0);
        scene.consume(scene.name("readers"), queue.getTopic(), "*", new Inbox());
        scene.awaitCommitted(scene.name("readers"), queue, 1);
        scene.fact("tracks", scene.admin.messageTrackDetail(scene.admin.viewMessage(sent.getOffsetMsgId())).stream()
            .map(track -> Scene.row("group", track.getConsumerGroup(), "track", track.getTrackType()))
            .collect(Collectors.toList()));
    }

    public void groupLists(Scene scene) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(scene.name("group"));
        scene.admin.createAndUpdateSubscriptionGroupConfig(scene.address, config);
        var all = scene.admin.getAllSubscriptionGroup(scene.address, Scene.TIMEOUT_MS).getSubscriptionGroupTable();
        var own = scene.admin.getUserSubscriptionGroup(scene.address, Scene.TIMEOUT_MS).getSubscriptionGroupTable();
        scene.fact("all", all.containsKey(config.getGroupName()));
        scene.fact("of users", own.containsKey(config.getGroupName()));
        // Groups of other cases come and go between the two questions.
        scene.fact("of the system", all.keySet().stream()
            .filter(group -> !own.containsKey(group) && !Scene.isName(group))
            .collect(Collectors.toCollection(TreeSet::new)));
    }

    public void whoConsumesATopic(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m");
        for (String group : List.of(scene.name("one"), scene.name("two"))) {
            scene.consume(group, queue.getTopic(), "*", new Inbox());
            scene.awaitCommitted(group, queue, 1);
        }
        scene.fact("groups", new TreeSet<>(scene.admin.queryTopicConsumeByWho(queue.getTopic()).getGroupList()));
    }

    public void membersOfAGroup(Scene scene) throws Exception {
        String topic = scene.topic(2);
        String group = scene.name("readers");
        DefaultMQPushConsumer one = scene.consume(group, topic, "*", new Inbox());
        DefaultMQPushConsumer two = scene.consume(group, topic, "*", new Inbox());
        var api = scene.producer().getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        Scene.await("two members", () ->
            api.getConsumerIdListByGroup(scene.address, group, Scene.TIMEOUT_MS).size() == 2);
        scene.fact("are the two", new TreeSet<>(api.getConsumerIdListByGroup(scene.address, group, Scene.TIMEOUT_MS))
            .equals(new TreeSet<>(List.of(one.buildMQClientId(), two.buildMQClientId()))));
        two.shutdown();
        Scene.await("one member", () ->
            api.getConsumerIdListByGroup(scene.address, group, Scene.TIMEOUT_MS).size() == 1);
        scene.fact("unknown group", scene.refusal(
            () -> api.getConsumerIdListByGroup(scene.address, scene.name("unknown"), Scene.TIMEOUT_MS)));
    }

    public void listenerThatNeverSaysYes(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        String group = scene.name("readers");
        DefaultMQPushConsumer consumer = scene.consumer(group);
        consumer.subscribe(queue.getTopic(), "*");
        consumer.registerMessageListener((List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
            throw new IllegalStateException("no");
        });
        scene.start(consumer);
        SendResult sent = scene.send(queue, "m").get(0);
        PushCases.awaitQueues(consumer, queue.getTopic(), 1);
        ConsumeMessageDirectlyResult result =
            scene.admin.consumeMessageDirectly(group, consumer.buildMQClientId(), sent.getOffsetMsgId());
        scene.fact("result", result.getConsumeResult());
        scene.fact("says why", result.getRemark().contains("IllegalStateException"));
    }
}
