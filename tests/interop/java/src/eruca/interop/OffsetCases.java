package eruca.interop;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.admin.ConsumeStats;
import org.apache.rocketmq.common.admin.RollbackStats;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.body.QueueTimeSpan;

/** How far groups are, and how an administrator changes that. */
final class OffsetCases {
    /** A topic of one queue with this number of messages, which a group has consumed. */
    private static MessageQueue consumed(Scene scene, int count, Inbox inbox, boolean leave) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.sendMany(queue.getTopic(), 1, "m", count);
        DefaultMQPushConsumer consumer = scene.consume(scene.name("readers"), queue.getTopic(), "*", inbox);
        inbox.await(count);
        scene.awaitCommitted(scene.name("readers"), queue, count);
        if (leave) {
            consumer.shutdown();
        }
        return queue;
    }

    private static Map<String, Object> describe(ConsumeStats stats, String topic) {
        Map<String, Object> rows = new TreeMap<>();
        stats.getOffsetTable().forEach((queue, offset) -> {
            if (queue.getTopic().equals(topic)) {
                rows.put(String.valueOf(queue.getQueueId()), Scene.row(
                    "broker", offset.getBrokerOffset(), "consumer", offset.getConsumerOffset(),
                    "has time", offset.getLastTimestamp() > 0));
            }
        });
        return rows;
    }

    public void consumeStats(Scene scene) throws Exception {
        MessageQueue queue = consumed(scene, 3, new Inbox(), true);
        String group = scene.name("readers");
        scene.send(queue, "m3", "m4");
        scene.fact("of the group", describe(scene.admin.examineConsumeStats(group), queue.getTopic()));
        scene.fact("of the topic", describe(scene.admin.examineConsumeStats(group, queue.getTopic()), queue.getTopic()));
        scene.fact("behind", scene.admin.examineConsumeStats(group, queue.getTopic()).computeTotalDiff());
    }

    public void consumeStatsOfTheBroker(Scene scene) throws Exception {
        MessageQueue queue = consumed(scene, 2, new Inbox(), true);
        List<ConsumeStats> stats = scene.admin.fetchConsumeStatsInBroker(scene.address, false, Scene.TIMEOUT_MS)
            .getConsumeStatsList().stream().filter(map -> map.containsKey(scene.name("readers")))
            .flatMap(map -> map.get(scene.name("readers")).stream()).collect(Collectors.toList());
        scene.fact("of the group", stats.stream().map(one -> describe(one, queue.getTopic()))
            .filter(row -> !row.isEmpty()).collect(Collectors.toList()));
    }

    public void consumeTimeSpan(Scene scene) throws Exception {
        MessageQueue queue = consumed(scene, 2, new Inbox(), true);
        QueueTimeSpan span = scene.admin.queryConsumeTimeSpan(queue.getTopic(), scene.name("readers")).get(0);
        var stored = scene.read(queue, 2);
        scene.fact("queue", span.getMessageQueue().getQueueId());
        scene.fact("begins with the first", span.getMinTimeStamp() == stored.get(0).getStoreTimestamp());
        scene.fact("ends with the last", span.getMaxTimeStamp() == stored.get(1).getStoreTimestamp());
        scene.fact("consumed to the last", span.getConsumeTimeStamp() == stored.get(1).getStoreTimestamp());
        scene.fact("behind", span.getDelayTime());
    }

    public void consumeStatus(Scene scene) throws Exception {
        MessageQueue queue = consumed(scene, 3, new Inbox(), false);
        Map<String, Map<MessageQueue, Long>> status =
            scene.admin.getConsumeStatus(queue.getTopic(), scene.name("readers"), "");
        scene.fact("members", status.size());
        scene.fact("offset", status.values().iterator().next().get(queue));
    }

    public void offsetsOfARunningGroupAreReset(Scene scene) throws Exception {
        Inbox inbox = new Inbox();
        MessageQueue queue = consumed(scene, 3, inbox, false);
        Map<MessageQueue, Long> reset =
            scene.admin.resetOffsetByTimestamp(queue.getTopic(), scene.name("readers"), 0, true);
        scene.fact("to", reset.get(queue));
        scene.fact("came", Inbox.sorted(inbox.await(6)));
    }

    public void offsetsAreResetToTheEnd(Scene scene) throws Exception {
        Inbox inbox = new Inbox();
        MessageQueue queue = consumed(scene, 3, inbox, false);
        Map<MessageQueue, Long> reset = scene.admin.resetOffsetByTimestamp(
            queue.getTopic(), scene.name("readers"), System.currentTimeMillis() + 10_000, true);
        scene.fact("to", reset.get(queue));
        scene.fact("came again", Inbox.bodies(inbox.await(4).subList(3, 4)));
        scene.awaitCommitted(scene.name("readers"), queue, 3);
    }

    public void offsetsOfAGroupThatIsAwayAreReset(Scene scene) throws Exception {
        MessageQueue queue = consumed(scene, 3, new Inbox(), true);
        scene.fact("online only", scene.refusal(() -> scene.admin.resetOffsetByTimestamp(
            queue.getTopic(), scene.name("readers"), 0, true)).get("code"));
        List<RollbackStats> reset =
            scene.admin.resetOffsetByTimestampOld(scene.name("readers"), queue.getTopic(), 0, true);
        scene.fact("reset", reset.stream().map(one -> Scene.row(
            "queue", one.getQueueId(), "broker", one.getBrokerOffset(), "consumer", one.getConsumerOffset(),
            "by time", one.getTimestampOffset(), "to", one.getRollbackOffset())).collect(Collectors.toList()));
        scene.fact("offset", scene.committed(scene.name("readers"), queue));
        Inbox again = new Inbox();
        scene.consume(scene.name("readers"), queue.getTopic(), "*", again);
        scene.fact("came", Inbox.sorted(again.await(3)));
    }

    public void offsetIsSet(Scene scene) throws Exception {
        MessageQueue queue = consumed(scene, 3, new Inbox(), true);
        scene.admin.updateConsumeOffset(scene.address, scene.name("readers"), queue, 1);
        scene.fact("offset", scene.committed(scene.name("readers"), queue));
        Inbox again = new Inbox();
        scene.consume(scene.name("readers"), queue.getTopic(), "*", again);
        scene.fact("came", Inbox.sorted(again.await(2)));
    }

    public void offsetsAreCopiedToAnotherGroup(Scene scene) throws Exception {
        MessageQueue queue = consumed(scene, 3, new Inbox(), true);
        scene.admin.cloneGroupOffset(scene.name("readers"), scene.name("copy"), queue.getTopic(), true);
        scene.fact("offset", scene.committed(scene.name("copy"), queue));
    }

    public void offsetsByAdmin(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m0", "m1");
        scene.fact("bounds", List.of(scene.admin.minOffset(queue), scene.admin.maxOffset(queue)));
        scene.fact("by time", List.of(scene.admin.searchOffset(queue, 0),
            scene.admin.searchOffset(queue, System.currentTimeMillis() + 1000)));
        scene.fact("earliest is the first's",
            scene.admin.earliestMsgStoreTime(queue) == scene.read(queue, 2).get(0).getStoreTimestamp());
    }

    public void newGroupBeginsAtZero(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.fact("empty queue", scene.committed(scene.name("strangers"), queue));
        scene.send(queue, "m");
        scene.fact("filled queue", scene.committed(scene.name("strangers"), queue));
    }
}
