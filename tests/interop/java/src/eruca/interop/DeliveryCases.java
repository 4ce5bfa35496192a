package eruca.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Each part of delivery with many messages; what is to be done with each of them comes with the request. */
final class DeliveryCases {
    private static final long SILENCE_MS = 4000;

    private static int number(Message message) {
        return Integer.parseInt(new String(message.getBody()));
    }

    private static List<Integer> numbers(List<MessageExt> messages) {
        return messages.stream().map(DeliveryCases::number).sorted().collect(Collectors.toList());
    }

    // --- order --------------------------------------------------------------------------------------------------

    /** Two members; some messages are put off for a moment before they are done. */
    public void ordered(Scene scene) throws Exception {
        JSONArray queues = scene.request.getJSONArray("queues");
        JSONObject suspends = scene.request.getJSONObject("suspends");
        int count = queues.stream().mapToInt(queue -> (int) queue).max().orElse(0) + 1;
        String topic = scene.topic(count);
        Map<Integer, List<Integer>> done = new TreeMap<>();
        Map<Integer, Integer> tries = new ConcurrentHashMap<>();
        Map<Integer, Integer> busy = new ConcurrentHashMap<>();
        AtomicInteger together = new AtomicInteger();
        AtomicInteger left = new AtomicInteger(queues.size());
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (int member = 0; member < 2; member++) {
            DefaultMQPushConsumer consumer = scene.consumer(scene.name("readers"));
            consumer.setSuspendCurrentQueueTimeMillis(20);
            consumer.setConsumeThreadMin(4);
            consumer.setConsumeThreadMax(4);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((List<MessageExt> messages, ConsumeOrderlyContext context) -> {
                int queue = messages.get(0).getQueueId();
                if (busy.merge(queue, 1, Integer::sum) > 1) {
                    together.incrementAndGet();
                }
                try {
                    int number = number(messages.get(0));
                    if (tries.merge(number, 1, Integer::sum) <= suspends.getIntValue(String.valueOf(number))) {
                        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                    }
                    synchronized (done) {
                        done.computeIfAbsent(queue, any -> new ArrayList<>()).add(number);
                    }
                    left.decrementAndGet();
                    return ConsumeOrderlyStatus.SUCCESS;
                } finally {
                    busy.merge(queue, -1, Integer::sum);
                }
            });
            members.add(scene.start(consumer));
        }
        for (DefaultMQPushConsumer member : members) {
            PushCases.awaitQueues(member, topic, count / 2);
        }
        for (int number = 0; number < queues.size(); number++) {
            scene.producer().send(
                Scene.message(topic, String.valueOf(number)), scene.queue(topic, queues.getIntValue(number)));
        }
        Scene.await("all messages", () -> left.get() <= 0);
        for (Map.Entry<Integer, List<Integer>> entry : done.entrySet()) {
            scene.awaitCommitted(scene.name("readers"), scene.queue(topic, entry.getKey()), entry.getValue().size());
        }
        scene.fact("done", done);
        scene.fact("tries", tries.values().stream().mapToInt(Integer::intValue).sum());
        scene.fact("two at a time in a queue", together.get());
    }

    // --- retry --------------------------------------------------------------------------------------------------

    /** Each message fails a number of times; those that fail too often are dead letters in the end. */
    public void retries(Scene scene) throws Exception {
        JSONArray failures = scene.request.getJSONArray("failures");
        int level = scene.request.getIntValue("level");
        int most = scene.request.getIntValue("most");
        String topic = scene.topic(4);
        String group = scene.name("readers");
        Map<Integer, List<Integer>> times = new TreeMap<>();
        Map<Integer, List<String>> levels = new TreeMap<>();
        DefaultMQPushConsumer consumer = scene.consumer(group);
        consumer.setMaxReconsumeTimes(most);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
            MessageExt message = messages.get(0);
            int number = number(message);
            synchronized (times) {
                times.computeIfAbsent(number, any -> new ArrayList<>()).add(message.getReconsumeTimes());
                levels.computeIfAbsent(number, any -> new ArrayList<>()).add(message.getProperty("DELAY"));
            }
            context.setDelayLevelWhenNextConsume(level);
            return message.getReconsumeTimes() < failures.getIntValue(number)
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        scene.start(consumer);
        for (int number = 0; number < failures.size(); number++) {
            scene.producer().send(Scene.message(topic, String.valueOf(number)), scene.queue(topic, number % 4));
        }
        int dead = (int) failures.stream().filter(count -> (int) count > most).count();
        MessageQueue letters = scene.queue(MixAll.getDLQTopic(group), 0);
        Scene.await("the dead letters' topic", () -> scene.queuesOf(letters.getTopic()) > 0);
        Scene.await("the dead letters", () -> scene.admin.maxOffset(letters) >= dead);
        int calls = failures.stream().mapToInt(count -> Math.min((int) count, most) + 1).sum();
        Scene.await("all calls", () -> {
            synchronized (times) {
                return times.values().stream().mapToInt(List::size).sum() >= calls;
            }
        });
        // Java's own broker makes that topic for writing only.
        scene.configure(new TopicConfig(letters.getTopic(), 1, 1, 6));
        Map<Integer, Integer> found = new TreeMap<>();
        for (MessageExt letter : scene.read(letters, dead)) {
            found.put(number(letter), letter.getReconsumeTimes());
        }
        scene.fact("times", times);
        scene.fact("levels", levels);
        scene.fact("dead", found);
        scene.fact("letters", scene.admin.maxOffset(letters));
    }

    // --- delay --------------------------------------------------------------------------------------------------

    /** How late each message was stored in its topic, by the broker's own clock. */
    public void delays(Scene scene) throws Exception {
        JSONArray levels = scene.request.getJSONArray("levels");
        JSONObject millis = scene.request.getJSONObject("millis");
        String topic = scene.topic(4);
        Inbox inbox = new Inbox();
        scene.consume(scene.name("readers"), topic, "*", inbox);
        List<Long> due = new ArrayList<>();
        List<SendResult> results = new ArrayList<>();
        for (int number = 0; number < levels.size(); number++) {
            Message message = Scene.message(topic, String.valueOf(number));
            message.setDelayTimeLevel(levels.getIntValue(number));
            results.add(scene.producer().send(message));
        }
        for (int number = 0; number < levels.size(); number++) {
            // The record that waits, stored when it was sent.
            MessageExt waiting = scene.admin.viewMessage(topic, results.get(number).getOffsetMsgId());
            due.add(waiting.getStoreTimestamp() + millis.getLongValue(levels.getString(number)));
        }
        long last = due.stream().mapToLong(Long::longValue).max().orElse(0);
        // Some wait longer than one waits for an inbox.
        Scene.await("the last one's time", () -> System.currentTimeMillis() >= last - 5000);
        List<MessageExt> came = inbox.await(levels.size());
        scene.fact("late", came.stream().map(message -> List.of(
            number(message), message.getStoreTimestamp() - due.get(number(message)))).collect(Collectors.toList()));
    }

    // --- transactions -------------------------------------------------------------------------------------------

    /** Each letter of an outcome is one answer: the first at once, the others to questions of the broker. */
    public void transactions(Scene scene) throws Exception {
        JSONArray outcomes = scene.request.getJSONArray("outcomes");
        String topic = scene.topic(4);
        Map<Integer, AtomicInteger> asked = new ConcurrentHashMap<>();
        AtomicInteger unexpected = new AtomicInteger();
        long[] lastAsked = {System.currentTimeMillis()};
        TransactionMQProducer producer = new TransactionMQProducer(scene.name("deciders"));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return decide(outcomes.getString(number(message)), 0);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                int times = asked.computeIfAbsent(number(message), any -> new AtomicInteger()).incrementAndGet();
                lastAsked[0] = System.currentTimeMillis();
                String outcome = outcomes.getString(number(message));
                if (outcome.length() == 1) {
                    unexpected.incrementAndGet();
                }
                return decide(outcome, times);
            }
        });
        scene.start(producer);
        for (int number = 0; number < outcomes.size(); number++) {
            producer.sendMessageInTransaction(Scene.message(topic, String.valueOf(number)), null);
        }
        for (int number = 0; number < outcomes.size(); number++) {
            int wanted = outcomes.getString(number).length() - 1;
            int one = number;
            Scene.await("questions about " + number,
                () -> wanted == 0 || asked.containsKey(one) && asked.get(one).get() >= wanted);
        }
        // A broker that asks about nothing any more has heard every answer.
        Scene.await("silence", () -> System.currentTimeMillis() - lastAsked[0] > SILENCE_MS);
        List<MessageExt> visible = new ArrayList<>();
        for (int queue = 0; queue < 4; queue++) {
            visible.addAll(scene.read(scene.queue(topic, queue), 0));
        }
        scene.fact("visible", numbers(visible));
        scene.fact("asked", new TreeMap<>(asked).entrySet().stream().collect(
            Collectors.toMap(entry -> String.valueOf(entry.getKey()), entry -> entry.getValue().get())));
        scene.fact("asked about decided ones", unexpected.get());
    }

    private static LocalTransactionState decide(String outcome, int times) {
        switch (outcome.charAt(Math.min(times, outcome.length() - 1))) {
            case 'c': return LocalTransactionState.COMMIT_MESSAGE;
            case 'r': return LocalTransactionState.ROLLBACK_MESSAGE;
            default: return LocalTransactionState.UNKNOW;
        }
    }

    // --- filters ------------------------------------------------------------------------------------------------

    public void tags(Scene scene) throws Exception {
        filter(scene, false);
    }

    public void sql(Scene scene) throws Exception {
        filter(scene, true);
    }

    /** One group for each expression; gives what each one got, when its offsets are at the end. */
    private static void filter(Scene scene, boolean isSql) throws Exception {
        JSONArray messages = scene.request.getJSONArray("messages");
        JSONObject groups = scene.request.getJSONObject("groups");
        String topic = scene.topic(4);
        Map<String, Inbox> inboxes = new TreeMap<>();
        for (String group : groups.keySet()) {
            DefaultMQPushConsumer consumer = scene.consumer(scene.name(group));
            if (isSql) {
                consumer.subscribe(topic, MessageSelector.bySql(groups.getString(group)));
            } else {
                consumer.subscribe(topic, groups.getString(group));
            }
            Inbox inbox = new Inbox();
            inboxes.put(group, inbox);
            consumer.registerMessageListener(Scene.into(inbox));
            scene.start(consumer);
        }
        for (int number = 0; number < messages.size(); number++) {
            JSONObject properties = messages.getJSONObject(number);
            Message message = Scene.message(topic, String.valueOf(number));
            for (String name : properties.keySet()) {
                if (name.equals("TAGS")) {
                    message.setTags(properties.getString(name));
                } else {
                    message.putUserProperty(name, properties.getString(name));
                }
            }
            scene.producer().send(message, scene.queue(topic, number % 4));
        }
        Map<String, Object> got = new TreeMap<>();
        for (String group : inboxes.keySet()) {
            for (int queue = 0; queue < 4; queue++) {
                scene.awaitCommitted(scene.name(group), scene.queue(topic, queue), (messages.size() + 3 - queue) / 4);
            }
            got.put(group, numbers(inboxes.get(group).all()));
        }
        scene.fact("got", got);
    }

    // --- replay -------------------------------------------------------------------------------------------------

    /** A running group is sent back to a time between two halves. */
    public void reset(Scene scene) throws Exception {
        int half = scene.request.getIntValue("half");
        String topic = scene.topic(4);
        String group = scene.name("readers");
        Inbox inbox = new Inbox();
        scene.consume(group, topic, "*", inbox);
        for (int number = 0; number < half; number++) {
            scene.producer().send(Scene.message(topic, String.valueOf(number)), scene.queue(topic, number % 4));
        }
        inbox.await(half);
        // Brokers take the message nearest to a time, before or behind it: no send may take as long as this.
        Scene.letPass(2000);
        for (int number = half; number < 2 * half; number++) {
            scene.producer().send(Scene.message(topic, String.valueOf(number)), scene.queue(topic, number % 4));
        }
        List<Integer> first = numbers(inbox.await(2 * half));
        for (int queue = 0; queue < 4; queue++) {
            scene.awaitCommitted(group, scene.queue(topic, queue), 2 * half / 4);
        }
        long middle = inbox.all().stream().filter(message -> number(message) == half).findFirst().orElseThrow()
            .getStoreTimestamp();
        Map<MessageQueue, Long> to = scene.admin.resetOffsetByTimestamp(topic, group, middle, true);
        List<MessageExt> all = inbox.await(3 * half);
        for (int queue = 0; queue < 4; queue++) {
            scene.awaitCommitted(group, scene.queue(topic, queue), 2 * half / 4);
        }
        scene.fact("first", first);
        scene.fact("to", to.values().stream().sorted().collect(Collectors.toList()));
        scene.fact("again", numbers(inbox.all().subList(2 * half, inbox.all().size())));
        scene.fact("calls", all.size());
    }
}
