package eruca.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A member of a consumer group with the official client: a JSON request on the input, rows on the output.
 *
 * <p>The arguments are how often it balances, how often it renews its locks and how long it relies on one, in ms.
 * start (member, nameServer, group, topic, strategy, ordered, records, ...) answers with the client id and the clock;
 * balance gives the queues it owns, those its last balance gave it and among whom; stop ends it cleanly.
 *
 * <p>What it is given goes to the file "records", one JSON array a line and one write a line, so that what a handler
 * did before the process was killed is in the file: ["+", number, clock, topic, broker, queue, offset, reconsume times,
 * unique id, keys, body] when a handler begins with a message and ["-", number, clock] when it is done with it.
 */
public final class GroupMember {
    private static final long DRAIN_MS_MAX = 20_000;

    private final DefaultMQPushConsumer consumer;
    private final Remembered strategy;
    private final OutputStream records;
    private final AtomicLong numbers = new AtomicLong();
    private final long workNanos;
    private final ScheduledExecutorService persister = Executors.newSingleThreadScheduledExecutor();

    /** A strategy that remembers what it answered last, and for which members. */
    private static final class Remembered implements AllocateMessageQueueStrategy {
        private final AllocateMessageQueueStrategy strategy;
        private List<MessageQueue> allotted = List.of();
        private List<String> clients = List.of();

        Remembered(String name, String topic) {
            String[] words = name.split(" ");
            switch (words[0]) {
                case "average": strategy = new AllocateMessageQueueAveragely(); break;
                case "circle": strategy = new AllocateMessageQueueAveragelyByCircle(); break;
                case "consistent-hash": strategy = new AllocateMessageQueueConsistentHash(); break;
                case "machine-room":
                    AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                    byRoom.setConsumeridcs(Arrays.stream(words).skip(1).collect(Collectors.toSet()));
                    strategy = byRoom;
                    break;
                case "config":
                    AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
                    byConfig.setMessageQueueList(Arrays.stream(words).skip(2)
                        .map(number -> new MessageQueue(topic, words[1], Integer.parseInt(number)))
                        .collect(Collectors.toList()));
                    strategy = byConfig;
                    break;
                default: throw new IllegalArgumentException("no such strategy: " + name);
            }
        }

        @Override
        public List<MessageQueue> allocate(
            String group, String client, List<MessageQueue> queues, List<String> clients) {
            List<MessageQueue> result = strategy.allocate(group, client, queues, clients);
            if (!isRetry(queues.get(0))) {
                remember(List.copyOf(result), List.copyOf(clients));
            }
            return result;
        }

        private synchronized void remember(List<MessageQueue> allotted, List<String> clients) {
            this.allotted = allotted;
            this.clients = clients;
        }

        synchronized Map<String, Object> tell(Collection<MessageQueue> owned) {
            return Map.of("owned", describe(owned), "allotted", describe(allotted), "clients", clients);
        }

        @Override
        public String getName() {
            return strategy.getName();
        }
    }

    private static boolean isRetry(MessageQueue queue) {
        return queue.getTopic().startsWith(MixAll.RETRY_GROUP_TOPIC_PREFIX);
    }

    private static List<Object> describe(Collection<MessageQueue> queues) {
        return queues.stream().sorted()
            .map(queue -> List.of(queue.getTopic(), queue.getBrokerName(), queue.getQueueId()))
            .collect(Collectors.toList());
    }

    private GroupMember(JSONObject request) throws Exception {
        // A file stream and no channel: an interrupt, which is how the client ends its threads, would close that.
        records = new FileOutputStream(request.getString("records"), true);
        workNanos = TimeUnit.MILLISECONDS.toNanos(request.getLongValue("workMs"));
        strategy = new Remembered(request.getString("strategy"), request.getString("topic"));
        consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("nameServer"));
        consumer.setClientIP("127.0.0.1");
        consumer.setMqClientApiTimeout(Requests.PATIENCE_MS);
        consumer.setPollNameServerInterval(1000);
        // The first pull after a balance may come before the heartbeat that tells of it, and is refused then (code 25).
        // The setter of the consumer itself comes too late: what it sets was read when the consumer was made.
        consumer.getDefaultMQPushConsumerImpl().setPullTimeDelayMillsWhenException(100);
        consumer.setInstanceName(request.getString("member"));
        consumer.setAllocateMessageQueueStrategy(strategy);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(request.getIntValue("threads"));
        consumer.setConsumeThreadMax(request.getIntValue("threads"));
        consumer.setPullThresholdForQueue(request.getIntValue("cachedMax"));
        consumer.setHeartbeatBrokerInterval(request.getIntValue("heartbeatMs"));
        consumer.subscribe(request.getString("topic"), "*");
        if (request.getBooleanValue("ordered")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                take(messages, context.getMessageQueue());
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                take(messages, context.getMessageQueue());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        long persistMs = request.getLongValue("persistMs");
        persister.scheduleWithFixedDelay(this::persist, persistMs, persistMs, TimeUnit.MILLISECONDS);
    }

    private void take(List<MessageExt> messages, MessageQueue queue) {
        for (MessageExt message : messages) {
            long number = numbers.getAndIncrement();
            write("+", number, System.nanoTime(), queue.getTopic(), queue.getBrokerName(), queue.getQueueId(),
                message.getQueueOffset(), message.getReconsumeTimes(), message.getMsgId(), message.getKeys(),
                new String(message.getBody(), StandardCharsets.UTF_8));
            // Not a sleep: an interrupted handler still does its work.
            for (long end = System.nanoTime() + workNanos; System.nanoTime() < end;) {
                LockSupport.parkNanos(end - System.nanoTime());
            }
            write("-", number, System.nanoTime());
        }
    }

    private void write(Object... fields) {
        byte[] line = (JSON.toJSONString(Arrays.asList(fields), SerializerFeature.WriteMapNullValue) + "\n")
            .getBytes(StandardCharsets.UTF_8);
        try {
            synchronized (records) {
                records.write(line);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private Map<MessageQueue, ProcessQueue> table() {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable();
    }

    private Map<String, Object> balance() {
        return strategy.tell(table().entrySet().stream()
            .filter(entry -> !entry.getValue().isDropped() && !isRetry(entry.getKey()))
            .map(Map.Entry::getKey).collect(Collectors.toList()));
    }

    /** The client's own timer does this too, but not in the first ten seconds. */
    private void persist() {
        try {
            consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    /**
     * A clean end: no more is pulled, and what is cached is consumed before anything is given back. The client's
     * plain shutdown gives its locks back while its handlers go on, and so breaks the order of keys by itself.
     */
    private void stop() throws Exception {
        consumer.suspend();
        consumer.setAwaitTerminationMillisWhenShutdown(DRAIN_MS_MAX);
        persister.shutdown();
        consumer.shutdown();
        records.close();
    }

    private static GroupMember member;

    private static Object handle(JSONObject request) throws Exception {
        switch (request.getString("do")) {
            case "start":
                member = new GroupMember(request);
                return Map.of("clientId", member.consumer.buildMQClientId(), "clock", System.nanoTime());
            case "balance":
                return member.balance();
            case "stop":
                member.stop();
                return null;
            default:
                throw new IllegalArgumentException("no such request: " + request);
        }
    }

    public static void main(String[] arguments) throws Exception {
        // Read by classes of the client when they are loaded. The times are shorter than a user's, not the ways.
        System.setProperty("rocketmq.client.rebalance.waitInterval", arguments[0]);
        System.setProperty("rocketmq.client.rebalance.lockInterval", arguments[1]);
        System.setProperty("rocketmq.client.rebalance.lockMaxLiveTime", arguments[2]);
        System.setProperty("rocketmq.client.unlockDelayTimeMills", "100");
        Requests.serve(GroupMember::handle, SerializerFeature.DisableCircularReferenceDetect);
    }
}
