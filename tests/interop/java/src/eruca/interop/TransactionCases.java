package eruca.interop;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages that count only when their sender says so. */
final class TransactionCases {
    /** A listener that says one thing first and another when it is asked. */
    private static final class Decider implements TransactionListener {
        final ConcurrentLinkedQueue<MessageExt> asked = new ConcurrentLinkedQueue<>();
        final LocalTransactionState first;
        volatile Function<Integer, LocalTransactionState> later;
        volatile long lastAsked;

        Decider(LocalTransactionState first, Function<Integer, LocalTransactionState> later) {
            this.first = first;
            this.later = later;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return first;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            asked.add(message);
            lastAsked = System.currentTimeMillis();
            return later.apply(asked.size());
        }
    }

    private static TransactionMQProducer start(Scene scene, Decider decider) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(scene.name("deciders"));
        producer.setTransactionListener(decider);
        return scene.start(producer);
    }

    /** Roll back what is undecided, so that the broker is not left asking when the case is over. */
    private static void forget(Decider decider) throws Exception {
        int before = decider.asked.size();
        decider.later = count -> LocalTransactionState.ROLLBACK_MESSAGE;
        Scene.await("a last question", () -> decider.asked.size() > before);
        Scene.await("silence", () -> System.currentTimeMillis() - decider.lastAsked > 3000);
    }

    private static Message make(String topic) {
        Message message = Scene.message(topic, "TagA", "half");
        message.setKeys("k");
        message.putUserProperty("mine", "kept");
        return message;
    }

    private static MessageExt describeCommitted(Scene scene, MessageQueue queue, TransactionSendResult result)
        throws Exception {
        Scene.await("the message", () -> scene.admin.maxOffset(queue) >= 1);
        MessageExt message = scene.readOne(queue);
        scene.fact("status", result.getSendStatus());
        scene.fact("body", Inbox.text(message));
        scene.fact("keeps its id", message.getMsgId().equals(result.getMsgId()));
        scene.fact("transaction", String.valueOf(result.getTransactionId()).replace(result.getMsgId(), "its id"));
        scene.fact("flags", message.getSysFlag());
        scene.fact("points to its half", pointsToHalf(scene, message, result.getMsgId()));
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.keySet().removeAll(Set.of("UNIQ_KEY", "MIN_OFFSET", "MAX_OFFSET", "__transactionId__"));
        // Java's broker passes on how often it asked; the number depends on the time.
        properties.computeIfPresent("TRANSACTION_CHECK_TIMES", (key, value) -> "some");
        scene.fact("properties", properties);
        return message;
    }

    /** Whether the message says where in the log its half is; the first message of a broker is at position 0. */
    private static boolean pointsToHalf(Scene scene, MessageExt message, String id) throws Exception {
        long position = message.getPreparedTransactionOffset();
        MessageExt half = scene.admin.viewMessage(MessageDecoder.createMessageId(message.getStoreHost(), position));
        return half.getTopic().equals("RMQ_SYS_TRANS_HALF_TOPIC") && id.equals(MessageClientIDSetter.getUniqID(half));
    }

    public void transactionCommits(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        TransactionMQProducer producer = start(scene, new Decider(LocalTransactionState.COMMIT_MESSAGE, null));
        TransactionSendResult result = producer.sendMessageInTransaction(make(queue.getTopic()), null);
        scene.fact("state", result.getLocalTransactionState());
        describeCommitted(scene, queue, result);
        Inbox inbox = new Inbox();
        scene.consume(scene.name("readers"), queue.getTopic(), "TagA", inbox);
        scene.fact("came", Inbox.bodies(inbox.await(1)));
    }

    public void transactionRollsBack(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        Decider decider = new Decider(LocalTransactionState.ROLLBACK_MESSAGE, null);
        TransactionSendResult result = start(scene, decider).sendMessageInTransaction(make(queue.getTopic()), null);
        scene.fact("status", result.getSendStatus());
        scene.fact("state", result.getLocalTransactionState());
        // A later transaction has been decided, so the earlier one has too.
        commitAnother(scene, queue.getTopic());
        scene.fact("stored", Inbox.bodies(scene.read(queue, 1)));
    }

    private static void commitAnother(Scene scene, String topic) throws Exception {
        TransactionMQProducer other = new TransactionMQProducer(scene.name("others"));
        other.setTransactionListener(new Decider(LocalTransactionState.COMMIT_MESSAGE, null));
        scene.start(other).sendMessageInTransaction(Scene.message(topic, "other"), null);
        Scene.await("the other", () -> scene.admin.maxOffset(scene.queue(topic, 0)) >= 1);
    }

    public void undecidedIsHidden(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        Decider decider = new Decider(LocalTransactionState.UNKNOW, count -> LocalTransactionState.UNKNOW);
        start(scene, decider).sendMessageInTransaction(make(queue.getTopic()), null);
        Scene.await("a question", () -> !decider.asked.isEmpty());
        scene.fact("stored", scene.admin.maxOffset(queue));
        forget(decider);
    }

    public void brokerAsksAndItCommits(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        Decider decider = new Decider(LocalTransactionState.UNKNOW, count -> LocalTransactionState.COMMIT_MESSAGE);
        TransactionSendResult result = start(scene, decider).sendMessageInTransaction(make(queue.getTopic()), null);
        scene.fact("state", result.getLocalTransactionState());
        describeCommitted(scene, queue, result);
        MessageExt asked = decider.asked.peek();
        scene.fact("asked about", Scene.row(
            "topic", asked.getTopic(), "body", Inbox.text(asked), "mine", asked.getProperty("mine"),
            "transaction is its id", asked.getTransactionId().equals(result.getMsgId())));
    }

    public void administratorLetsTheBrokerAskAgain(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        Decider decider = new Decider(LocalTransactionState.UNKNOW, count -> LocalTransactionState.UNKNOW);
        start(scene, decider).sendMessageInTransaction(make(queue.getTopic()), null);
        Scene.await("a question", () -> !decider.asked.isEmpty());
        scene.fact("taken", scene.admin.resumeCheckHalfMessage(decider.asked.peek().getMsgId()));
        forget(decider);
    }

    public void brokerAsksTwice(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        Decider decider = new Decider(LocalTransactionState.UNKNOW, count -> count < 2
            ? LocalTransactionState.UNKNOW : LocalTransactionState.COMMIT_MESSAGE);
        start(scene, decider).sendMessageInTransaction(make(queue.getTopic()), null);
        Scene.await("the message", () -> scene.admin.maxOffset(queue) == 1);
        scene.fact("asked at least twice", decider.asked.size() >= 2);
        List<String> ids = decider.asked.stream().map(MessageExt::getTransactionId).distinct().collect(Collectors.toList());
        scene.fact("transactions", ids.size());
    }

    public void brokerAsksAndItRollsBack(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        Decider decider = new Decider(LocalTransactionState.UNKNOW, count -> LocalTransactionState.ROLLBACK_MESSAGE);
        start(scene, decider).sendMessageInTransaction(make(queue.getTopic()), null);
        Scene.await("a question", () -> !decider.asked.isEmpty());
        commitAnother(scene, queue.getTopic());
        scene.fact("stored", Inbox.bodies(scene.read(queue, 1)));
    }

    public void anotherProducerOfTheGroupIsAsked(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        Decider gone = new Decider(LocalTransactionState.UNKNOW, count -> LocalTransactionState.UNKNOW);
        Decider there = new Decider(LocalTransactionState.UNKNOW, count -> LocalTransactionState.COMMIT_MESSAGE);
        TransactionMQProducer leaving = start(scene, gone);
        TransactionMQProducer staying = start(scene, there);
        // Its heartbeat goes to the brokers it has sent to.
        staying.send(Scene.message(queue.getTopic(), "hello"));
        leaving.sendMessageInTransaction(make(queue.getTopic()), null);
        leaving.shutdown();
        Scene.await("the message", () -> scene.admin.maxOffset(queue) == 2);
        scene.fact("stored", Inbox.bodies(scene.read(queue, 2)));
        scene.fact("asked the other", there.asked.size() >= 1);
    }
}
