package eruca.interop;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.admin.TopicStatsTable;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.body.QueryConsumeQueueResponseBody;
import org.apache.rocketmq.common.protocol.route.QueueData;
import org.apache.rocketmq.common.protocol.route.TopicRouteData;

/** What an administrator does with topics. */
final class TopicCases {
    private static Map<String, Object> describe(TopicConfig config) {
        return Scene.row(
            "read", config.getReadQueueNums(), "write", config.getWriteQueueNums(), "permission", config.getPerm(),
            "filter", config.getTopicFilterType(), "flag", config.getTopicSysFlag(), "order", config.isOrder());
    }

    public void createTopic(Scene scene) throws Exception {
        String topic = scene.name("topic");
        TopicConfig config = new TopicConfig(topic, 3, 2, 6);
        config.setOrder(true);
        scene.configure(config);
        scene.fact("at the broker", describe(scene.admin.examineTopicConfig(scene.address, topic)));
        QueueData queues = scene.admin.examineTopicRouteInfo(topic).getQueueDatas().get(0);
        scene.fact("at the name server", Scene.row(
            "broker", queues.getBrokerName(), "read", queues.getReadQueueNums(), "write", queues.getWriteQueueNums(),
            "permission", queues.getPerm(), "flag", queues.getTopicSysFlag()));
    }

    public void createTopicThroughAProducer(Scene scene) throws Exception {
        String topic = scene.name("topic");
        scene.makeTopic(topic, () -> scene.producer().createTopic("TBW102", topic, 5));
        scene.fact("at the broker", describe(scene.admin.examineTopicConfig(scene.address, topic)));
    }

    public void updateTopic(Scene scene) throws Exception {
        String topic = scene.topic(2);
        scene.send(scene.queue(topic, 1), "kept");
        scene.configure(new TopicConfig(topic, 4, 6, 6));
        scene.fact("at the broker", describe(scene.admin.examineTopicConfig(scene.address, topic)));
        scene.fact("kept", Inbox.bodies(scene.read(scene.queue(topic, 1), 1)));
    }

    public void createTopicWithIllegalName(Scene scene) throws Exception {
        for (String topic : List.of("bad topic", "SCHEDULE_TOPIC_XXXX", "x".repeat(128))) {
            scene.fact(topic.startsWith("xx") ? "too long" : topic, scene.refusal(
                () -> scene.admin.createAndUpdateTopicConfig(scene.address, new TopicConfig(topic, 1, 1, 6))));
        }
    }

    public void deleteTopic(Scene scene) throws Exception {
        String topic = scene.topic(2);
        scene.send(scene.queue(topic, 0), "m");
        scene.admin.deleteTopicInBroker(Set.of(scene.address), topic);
        scene.fact("at the broker", scene.admin.getAllTopicConfig(scene.address, Scene.TIMEOUT_MS)
            .getTopicConfigTable().containsKey(topic));
        scene.admin.deleteTopicInNameServer(Set.of(scene.nameServer), topic, null);
        Scene.await("no route", () -> scene.queuesOf(topic) == 0);
        scene.fact("route", scene.refusal(() -> scene.admin.examineTopicRouteInfo(topic)));
    }

    public void deletedTopicBeginsAnew(Scene scene) throws Exception {
        String topic = scene.topic(1);
        scene.send(scene.queue(topic, 0), "old0", "old1");
        scene.admin.deleteTopicInBroker(Set.of(scene.address), topic);
        scene.admin.deleteTopicInNameServer(Set.of(scene.nameServer), topic, null);
        Scene.await("no route", () -> scene.queuesOf(topic) == 0);
        scene.configure(new TopicConfig(topic, 1, 1, 6));
        scene.fact("status", scene.send(scene.queue(topic, 0), "new").get(0).getSendStatus());
    }

    public void topicStats(Scene scene) throws Exception {
        String topic = scene.topic(2);
        scene.send(scene.queue(topic, 1), "m0", "m1", "m2");
        TopicStatsTable table = scene.admin.examineTopicStats(topic);
        Map<Integer, Object> bounds = new TreeMap<>();
        table.getOffsetTable().forEach((queue, offset) -> bounds.put(
            queue.getQueueId(), List.of(offset.getMinOffset(), offset.getMaxOffset())));
        scene.fact("bounds", bounds);
        long last = scene.read(scene.queue(topic, 1), 3).get(2).getStoreTimestamp();
        scene.fact("last update is the last message's",
            table.getOffsetTable().get(scene.queue(topic, 1)).getLastUpdateTimestamp() == last);
        scene.fact("never updated", table.getOffsetTable().get(scene.queue(topic, 0)).getLastUpdateTimestamp());
        scene.fact("unknown", scene.refusal(() -> scene.admin.examineTopicStats(scene.name("unknown"))).get("code"));
    }

    public void topicRoute(Scene scene) throws Exception {
        String topic = scene.topic(3);
        TopicRouteData route = scene.admin.examineTopicRouteInfo(topic);
        scene.fact("brokers", route.getBrokerDatas().stream().map(data -> Scene.row(
            "name", data.getBrokerName(), "cluster", data.getCluster(), "addresses", data.getBrokerAddrs()))
            .collect(Collectors.toList()));
        scene.fact("queues", route.getQueueDatas().size());
        scene.fact("filter servers", route.getFilterServerTable());
        scene.fact("clusters of the topic", scene.admin.getTopicClusterList(topic));
    }

    public void topicLists(Scene scene) throws Exception {
        String topic = scene.topic(1);
        scene.fact("all", scene.admin.fetchAllTopicList().getTopicList().contains(topic));
        scene.fact("of the cluster", scene.admin.fetchTopicsByCLuster(scene.cluster).getTopicList().contains(topic));
        scene.fact("of the broker", scene.admin.getAllTopicConfig(scene.address, Scene.TIMEOUT_MS)
            .getTopicConfigTable().containsKey(topic));
        scene.fact("of users", scene.admin.getUserTopicConfig(scene.address, false, Scene.TIMEOUT_MS)
            .getTopicConfigTable().containsKey(topic));
        Set<String> system = new TreeSet<>(Set.of(
            "TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest", "SCHEDULE_TOPIC_XXXX",
            "RMQ_SYS_TRANS_HALF_TOPIC", scene.cluster, scene.broker, "DefaultCluster_REPLY_TOPIC"));
        system.retainAll(scene.admin.fetchAllTopicList().getTopicList());
        scene.fact("of the system", system);
    }

    public void consumeQueueEntries(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        String group = scene.name("readers");
        for (String tag : List.of("A", "B")) {
            scene.send(queue, Scene.message(queue.getTopic(), tag, tag));
        }
        Inbox inbox = new Inbox();
        scene.consume(group, queue.getTopic(), "A", inbox);
        inbox.await(1);
        QueryConsumeQueueResponseBody answer =
            scene.admin.queryConsumeQueue(scene.address, queue.getTopic(), 0, 0, 10, group);
        scene.fact("bounds", List.of(answer.getMinQueueIndex(), answer.getMaxQueueIndex()));
        scene.fact("subscription", answer.getSubscriptionData().getSubString());
        scene.fact("entries", answer.getQueueData().stream().map(entry -> Scene.row(
            "tag", entry.getTagsCode(), "fits", entry.isEval(), "size is a record's", entry.getPhysicSize() > 90))
            .collect(Collectors.toList()));
    }

    public void orderedTopicConfiguration(Scene scene) throws Exception {
        String topic = scene.topic(1);
        scene.admin.createOrUpdateOrderConf(topic, scene.broker + ":4", false);
        scene.fact("kept", scene.admin.getKVConfig("ORDER_TOPIC_CONFIG", topic));
        scene.admin.createOrUpdateOrderConf(topic, scene.broker + ":8", false);
        scene.fact("changed", scene.admin.getKVConfig("ORDER_TOPIC_CONFIG", topic));
        scene.admin.deleteKvConfig("ORDER_TOPIC_CONFIG", topic);
    }

    public void brokerStats(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m0", "m1");
        var stats = scene.admin.viewBrokerStatsData(scene.address, "TOPIC_PUT_NUMS", queue.getTopic());
        scene.fact("has minute, hour and day",
            stats.getStatsMinute() != null && stats.getStatsHour() != null && stats.getStatsDay() != null);
        scene.fact("unknown", scene.refusal(
            () -> scene.admin.viewBrokerStatsData(scene.address, "TOPIC_PUT_NUMS", scene.name("unknown"))));
        scene.fact("unknown kind", scene.refusal(
            () -> scene.admin.viewBrokerStatsData(scene.address, "NO_SUCH_NUMS", queue.getTopic())));
    }

    @Alone
    public void wipeAndAddWritePermission(Scene scene) throws Exception {
        String topic = scene.topic(1);
        scene.fact("wiped some", scene.admin.wipeWritePermOfBroker(scene.nameServer, scene.broker) > 0);
        try {
            scene.fact("wiped", scene.admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getPerm());
        } finally {
            scene.fact("added some", scene.admin.addWritePermOfBroker(scene.nameServer, scene.broker) > 0);
        }
        scene.fact("added", scene.admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getPerm());
    }

    @Alone
    public void brokerConfiguration(Scene scene) throws Exception {
        Properties before = scene.admin.getBrokerConfig(scene.address);
        Map<String, String> some = new TreeMap<>();
        for (String key : List.of(
            "brokerName", "brokerClusterName", "brokerId", "brokerRole", "flushDiskType", "autoCreateTopicEnable",
            "enablePropertyFilter", "defaultTopicQueueNums", "maxMessageSize", "longPollingEnable", "brokerPermission")) {
            some.put(key, before.getProperty(key));
        }
        scene.fact("some", some);
        Properties change = new Properties();
        change.setProperty("maxTransferCountOnMessageInMemory", "5");
        scene.admin.updateBrokerConfig(scene.address, change);
        try {
            MessageQueue queue = scene.queue(scene.topic(1), 0);
            scene.sendMany(queue.getTopic(), 1, "m", 9);
            scene.fact("changed", scene.admin.getBrokerConfig(scene.address)
                .getProperty("maxTransferCountOnMessageInMemory"));
            scene.fact("in force", scene.puller().pull(queue, "*", 0, 32).getMsgFoundList().size() < 9);
        } finally {
            change.setProperty("maxTransferCountOnMessageInMemory", "32");
            scene.admin.updateBrokerConfig(scene.address, change);
        }
    }
}
