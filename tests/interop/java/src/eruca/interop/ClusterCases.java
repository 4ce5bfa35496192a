package eruca.interop;

import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.body.ClusterInfo;

/** The cluster as a whole: brokers, name server, cleaning. */
final class ClusterCases {
    public void clusterInfo(Scene scene) throws Exception {
        ClusterInfo info = scene.admin.examineBrokerClusterInfo();
        scene.fact("clusters", info.getClusterAddrTable());
        Map<String, Object> brokers = new TreeMap<>();
        info.getBrokerAddrTable().forEach((name, data) -> brokers.put(
            name, Scene.row("cluster", data.getCluster(), "addresses", data.getBrokerAddrs())));
        scene.fact("brokers", brokers);
        scene.fact("topics of no cluster", scene.admin.fetchTopicsByCLuster(scene.name("none")).getTopicList());
    }

    public void runtimeStats(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m");
        Map<String, String> table = scene.admin.fetchBrokerRuntimeStats(scene.address).getTable();
        Set<String> wanted = new TreeSet<>(List.of(
            "brokerVersion", "brokerVersionDesc", "bootTimestamp", "runtime", "putTps", "getFoundTps", "getMissTps",
            "getTotalTps", "getTransferedTps", "msgPutTotalTodayNow", "msgGetTotalTodayNow", "msgPutTotalTodayMorning",
            "msgPutTotalYesterdayMorning", "msgGetTotalTodayMorning", "msgGetTotalYesterdayMorning",
            "commitLogMaxOffset", "commitLogMinOffset", "commitLogDiskRatio", "consumeQueueDiskRatio",
            "commitLogDirCapacity", "sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity",
            "pullThreadPoolQueueSize", "pullThreadPoolQueueCapacity", "queryThreadPoolQueueSize",
            "EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity", "sendThreadPoolQueueHeadWaitTimeMills",
            "pullThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueHeadWaitTimeMills", "putMessageTimesTotal",
            "putMessageAverageSize", "putMessageDistributeTime", "putMessageEntireTimeMax", "putMessageSizeTotal",
            "getMessageEntireTimeMax", "dispatchBehindBytes", "dispatchMaxBuffer", "pageCacheLockTimeMills",
            "earliestMessageTimeStamp", "startAcceptSendRequestTimeStamp", "remainTransientStoreBufferNumbs",
            "remainHowManyDataToFlush"));
        wanted.removeAll(table.keySet());
        scene.fact("missing", wanted);
        scene.fact("version", List.of(table.get("brokerVersion"), table.get("brokerVersionDesc")));
        scene.fact("counts", Long.parseLong(table.get("msgPutTotalTodayNow")) >= 1);
    }

    public void keysAndValues(Scene scene) throws Exception {
        String space = scene.name("space");
        scene.admin.createAndUpdateKvConfig(space, "k", "v");
        scene.admin.createAndUpdateKvConfig(space, "l", "w");
        scene.fact("one", scene.admin.getKVConfig(space, "k"));
        scene.fact("all", new TreeMap<>(scene.admin.getKVListByNamespace(space).getTable()));
        scene.admin.deleteKvConfig(space, "k");
        scene.fact("deleted", scene.refusal(() -> scene.admin.getKVConfig(space, "k")));
        scene.fact("left", new TreeMap<>(scene.admin.getKVListByNamespace(space).getTable()));
        scene.fact("no space", scene.refusal(() -> scene.admin.getKVListByNamespace(scene.name("other"))).get("code"));
    }

    public void nameServerConfiguration(Scene scene) throws Exception {
        Map<String, Properties> all = scene.admin.getNameServerConfig(List.of(scene.nameServer));
        Properties one = all.get(scene.nameServer);
        scene.fact("servers", all.size());
        scene.fact("port is its own", scene.nameServer.endsWith(":" + one.getProperty("listenPort")));
        scene.fact("order messages", one.getProperty("orderMessageEnable"));
    }

    @Alone
    public void cleaning(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m");
        scene.fact("queues", scene.admin.cleanExpiredConsumerQueueByAddr(scene.address));
        scene.fact("queues of the cluster", scene.admin.cleanExpiredConsumerQueue(scene.cluster));
        scene.fact("log", scene.admin.deleteExpiredCommitLogByAddr(scene.address));
        scene.fact("topics", scene.admin.cleanUnusedTopicByAddr(scene.address));
        scene.fact("kept", Inbox.bodies(scene.read(queue, 1)));
    }
}
