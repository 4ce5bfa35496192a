package eruca.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.ResponseCode;

/** Messages found by what they are called. */
final class QueryCases {
    /** By key at any time; none is an answer too. */
    static List<MessageExt> find(Scene scene, String topic, String key) throws Exception {
        return find(scene, topic, key, 0, Long.MAX_VALUE);
    }

    private static List<MessageExt> find(Scene scene, String topic, String key, long begin, long end) throws Exception {
        try {
            QueryResult result = scene.producer().queryMessage(topic, key, 32, begin, end);
            List<MessageExt> found = new ArrayList<>(result.getMessageList());
            found.sort((one, other) -> Long.compare(one.getCommitLogOffset(), other.getCommitLogOffset()));
            return found;
        } catch (MQClientException error) {
            if (error.getResponseCode() == ResponseCode.NO_MESSAGE) {
                return List.of();
            }
            throw error;
        }
    }

    public void viewByOffsetId(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        SendResult result = scene.send(queue, "m0", "m1").get(1);
        MessageExt message = scene.producer().viewMessage(queue.getTopic(), result.getOffsetMsgId());
        scene.fact("body", Inbox.text(message));
        scene.fact("topic", message.getTopic());
        scene.fact("offset", message.getQueueOffset());
        scene.fact("by admin", Inbox.text(scene.admin.viewMessage(result.getOffsetMsgId())));
    }

    public void viewByUniqueId(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        SendResult result = scene.send(queue, "m0", "m1").get(0);
        Scene.await("the index", () -> {
            try {
                return scene.producer().viewMessage(queue.getTopic(), result.getMsgId()) != null;
            } catch (Exception none) {
                return false;
            }
        });
        MessageExt message = scene.producer().viewMessage(queue.getTopic(), result.getMsgId());
        scene.fact("body", Inbox.text(message));
        scene.fact("offset id is the result's",
            ((MessageClientExt) message).getOffsetMsgId().equals(result.getOffsetMsgId()));
    }

    public void viewWhatIsNotThere(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        SendResult result = scene.send(queue, "m").get(0);
        String far = result.getOffsetMsgId().substring(0, 16) + "00000FFFFFFFFFF0";
        scene.fact("refusal", scene.refusal(() -> scene.admin.viewMessage(far)).get("code"));
        String inside = result.getOffsetMsgId().substring(0, 16)
            + String.format("%016X", Long.parseLong(result.getOffsetMsgId().substring(16), 16) + 3);
        scene.fact("inside a record", scene.refusal(() -> scene.admin.viewMessage(inside)).get("code"));
    }

    public void queryByKey(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        for (String keys : List.of("a", "a b", "b", "c")) {
            Message message = Scene.message(queue.getTopic(), "is " + keys);
            message.setKeys(keys);
            scene.send(queue, message);
        }
        Scene.await("the index", () -> find(scene, queue.getTopic(), "c").size() == 1);
        scene.fact("a", Inbox.bodies(find(scene, queue.getTopic(), "a")));
        scene.fact("b", Inbox.bodies(find(scene, queue.getTopic(), "b")));
        scene.fact("z", Inbox.bodies(find(scene, queue.getTopic(), "z")));
        scene.fact("other topic", Inbox.bodies(find(scene, scene.topic("other", 1), "a")));
    }

    public void queryByKeyAndTime(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        for (int number = 0; number < 2; number++) {
            Message message = Scene.message(queue.getTopic(), "m" + number);
            message.setKeys("k");
            scene.send(queue, message);
            // The index knows whole seconds.
            Scene.letPass(2500);
        }
        List<Long> times = scene.read(queue, 2).stream().map(MessageExt::getStoreTimestamp).collect(Collectors.toList());
        Scene.await("the index", () -> find(scene, queue.getTopic(), "k").size() == 2);
        scene.fact("until the first", Inbox.bodies(find(scene, queue.getTopic(), "k", 0, times.get(0) + 1000)));
        scene.fact("from the second", Inbox.bodies(
            find(scene, queue.getTopic(), "k", times.get(1) - 1000, Long.MAX_VALUE)));
        scene.fact("later", Inbox.bodies(find(scene, queue.getTopic(), "k", times.get(1) + 60_000, Long.MAX_VALUE)));
    }

    public void queryByUniqueKey(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        SendResult result = scene.send(queue, "m0", "m1").get(1);
        Scene.await("the index", () -> {
            try {
                return scene.admin.queryMessageByUniqKey(queue.getTopic(), result.getMsgId(), 32, 0, Long.MAX_VALUE)
                    .getMessageList().size() == 1;
            } catch (MQClientException none) {
                return false;
            }
        });
        MessageExt message = scene.admin.queryMessageByUniqKey(
            queue.getTopic(), result.getMsgId(), 32, 0, Long.MAX_VALUE).getMessageList().get(0);
        scene.fact("body", Inbox.text(message));
    }

    public void queryBringsNoMoreThanAsked(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        for (int number = 0; number < 6; number++) {
            Message message = Scene.message(queue.getTopic(), "m" + number);
            message.setKeys("k");
            scene.send(queue, message);
        }
        Scene.await("the index", () -> find(scene, queue.getTopic(), "k").size() == 6);
        scene.fact("of six", scene.producer().queryMessage(queue.getTopic(), "k", 3, 0, Long.MAX_VALUE)
            .getMessageList().stream().map(Inbox::text).sorted().collect(Collectors.toList()));
    }
}
