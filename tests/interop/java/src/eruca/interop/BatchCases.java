package eruca.interop;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Many messages in one request. */
final class BatchCases {
    private static List<Message> make(String topic, int count) {
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            messages.add(Scene.message(topic, "m" + number));
        }
        return messages;
    }

    public void batchSend(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "before");
        SendResult result = scene.producer().send(make(queue.getTopic(), 5));
        scene.fact("status", result.getSendStatus());
        scene.fact("offset", result.getQueueOffset());
        scene.fact("unique ids", result.getMsgId().split(",").length);
        scene.fact("offset ids", result.getOffsetMsgId().split(",").length);
        List<MessageExt> stored = scene.read(queue, 6);
        scene.fact("stored", Inbox.bodies(stored));
        List<Long> offsets = new ArrayList<>();
        StringBuilder ids = new StringBuilder();
        for (MessageExt message : stored) {
            offsets.add(message.getQueueOffset());
            ids.append(message.getMsgId()).append(',');
        }
        scene.fact("offsets", offsets);
        scene.fact("ids are the result's", ids.toString().endsWith("," + result.getMsgId() + ","));
        scene.fact("seen by id",
            Inbox.text(scene.producer().viewMessage(queue.getTopic(), result.getOffsetMsgId().split(",")[3])));
    }

    public void batchSendToGivenQueue(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(3), 2);
        scene.producer().send(make(queue.getTopic(), 3), queue);
        scene.fact("stored", Inbox.bodies(scene.read(queue, 3)));
    }

    public void batchSendAsync(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        SendCases.Told told = new SendCases.Told();
        scene.producer().send(make(queue.getTopic(), 4), told);
        scene.fact("status", told.await().getSendStatus());
        scene.fact("stored", Inbox.bodies(scene.read(queue, 4)));
    }

    public void batchWithTagsAndKeys(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        List<Message> messages = make(queue.getTopic(), 6);
        for (int number = 0; number < 6; number++) {
            messages.get(number).setTags(number % 2 == 0 ? "even" : "odd");
            messages.get(number).setKeys("key" + number);
            messages.get(number).putUserProperty("number", String.valueOf(number));
        }
        scene.awaitSeen(scene.producer().send(messages));
        PullResult odd = scene.puller().pull(queue, "odd", 0, 32);
        scene.fact("odd", Inbox.bodies(odd.getMsgFoundList()));
        scene.fact("property", odd.getMsgFoundList().get(2).getProperty("number"));
        scene.fact("next", odd.getNextBeginOffset());
        Scene.await("the index", () -> QueryCases.find(scene, queue.getTopic(), "key3").size() == 1);
        scene.fact("by key", Inbox.bodies(QueryCases.find(scene, queue.getTopic(), "key3")));
    }

    /** What the client's documentation tells to do with more than fits into one request. */
    public void batchIsSplit(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        Iterator<Message> left = make(queue.getTopic(), 2000).iterator();
        int requests = 0;
        while (left.hasNext()) {
            List<Message> part = new ArrayList<>();
            for (int size = 0; left.hasNext() && size < 32 * 1024; size += 64) {
                part.add(left.next());
            }
            scene.producer().send(part);
            requests++;
        }
        List<MessageExt> stored = scene.read(queue, 2000);
        scene.fact("requests", requests);
        scene.fact("stored", stored.size());
        scene.fact("last", Inbox.text(stored.get(1999)));
    }

    public void batchOfAlmostFourMebibytes(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < 40; number++) {
            messages.add(new Message(queue.getTopic(), new byte[100_000]));
        }
        scene.fact("status", scene.start(SendCases.plainProducer(scene)).send(messages, queue).getSendStatus());
        scene.fact("stored", scene.read(queue, 40).size());
    }

    public void batchTooLarge(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < 50; number++) {
            messages.add(new Message(queue.getTopic(), new byte[100_000]));
        }
        var producer = scene.start(SendCases.plainProducer(scene));
        scene.fact("refusal", scene.refusal(() -> producer.send(messages, queue)));
        scene.fact("stored", scene.admin.maxOffset(queue));
    }
}
