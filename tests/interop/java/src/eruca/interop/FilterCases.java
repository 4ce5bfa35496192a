package eruca.interop;

import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Subscriptions that say what properties a message must have. */
final class FilterCases {
    /** Numbers 0 to 9 with their parity as tag; the last one fits every expression used here. */
    private static MessageQueue fill(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        for (int number = 0; number < 10; number++) {
            Message message = Scene.message(queue.getTopic(), number % 2 == 0 ? "even" : "odd", "m" + number);
            message.putUserProperty("n", String.valueOf(number));
            if (number % 3 == 0) {
                message.putUserProperty("third", "yes");
            }
            scene.send(queue, message);
        }
        return queue;
    }

    public void sqlPush(Scene scene) throws Exception {
        MessageQueue queue = fill(scene);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.consumer(scene.name("readers"));
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(queue.getTopic(), MessageSelector.bySql("n >= 4 AND TAGS = 'odd'"));
        consumer.registerMessageListener(Scene.into(inbox));
        scene.start(consumer);
        scene.fact("came", Inbox.bodies(inbox.await("m9")));
        scene.awaitCommitted(scene.name("readers"), queue, 10);
        Message late = Scene.message(queue.getTopic(), "odd", "late");
        late.putUserProperty("n", "11");
        scene.send(queue, late);
        scene.fact("late", Inbox.text(inbox.await("late").get(3)));
    }

    public void sqlExpressions(Scene scene) throws Exception {
        MessageQueue queue = fill(scene);
        awaitVersion(scene, queue);
        for (String expression : List.of(
            "n > 6", "n BETWEEN 2 AND 4", "n NOT BETWEEN 1 AND 8", "TAGS IN ('even', 'x') AND n < 5", "third IS NULL",
            "third IS NOT NULL", "third = 'yes' OR n = 1", "NOT (n < 8)", "n <> 3 AND n <= 4", "TRUE", "missing = 1")) {
            PullResult result = scene.puller().pull(queue, MessageSelector.bySql(expression), 0, 32);
            scene.fact(expression, result.getMsgFoundList() == null ? result.getPullStatus().name()
                : Inbox.bodies(result.getMsgFoundList()));
        }
    }

    /** The puller asks for such things only when a heartbeat has told it the version of the broker. */
    private static void awaitVersion(Scene scene, MessageQueue queue) throws Exception {
        scene.puller().pull(queue, "*", 0, 1);
        var client = scene.puller().getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
        Scene.await("the version", () -> client.findBrokerAddressInSubscribe(scene.broker, 0, false)
            .getBrokerVersion() > 0);
    }

    public void sqlLitePull(Scene scene) throws Exception {
        MessageQueue queue = fill(scene);
        DefaultLitePullConsumer consumer = scene.litePuller(scene.name("readers"));
        consumer.subscribe(queue.getTopic(), MessageSelector.bySql("n > 7 OR third = 'yes'"));
        scene.start(consumer);
        Inbox inbox = new Inbox();
        Scene.await("the last message", () -> {
            inbox.add(consumer.poll(100));
            return Inbox.bodies(inbox.all()).contains("m9");
        });
        scene.fact("came", Inbox.bodies(inbox.all()));
    }

    public void sqlThatIsNone(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        DefaultMQPushConsumer consumer = scene.consumer(scene.name("readers"));
        consumer.subscribe(queue.getTopic(), MessageSelector.bySql("n > > 4"));
        consumer.registerMessageListener(Scene.into(new Inbox()));
        scene.fact("push", scene.refusal(() -> {
            try {
                consumer.start();
            } finally {
                consumer.shutdown();
            }
        }).get("code"));
    }
}
