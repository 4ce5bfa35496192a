package eruca.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Push consumers of the official client that count numbered messages: a JSON request on the input, rows on the output.
 *
 * <p>A body begins with eight digits, its number. What was consumed is counted for each group, by all its consumers one
 * after the other. start (name, nameServer, group, topic, count, gate) starts a consumer that stops consuming when the
 * group has seen "gate" numbers, without giving back what it has; gate (group, at) moves that place; await (group, count,
 * seconds) waits for this many different numbers; tell (group) returns the counts, and for each queue the lowest offset that
 * came twice and the offset behind the highest; lacks (group, numbers) gives those of some numbers that did not come;
 * persist (name) commits; stop (name) ends a consumer cleanly.
 */
public final class CountingConsumer {
    private static final int DIGITS = 8;

    private final Map<String, Seen> groups = new HashMap<>();
    private final Map<String, Counting> consumers = new HashMap<>();

    /** What a group has consumed. */
    private static final class Seen {
        private final byte[] times;
        private final TreeMap<Integer, Long> behind = new TreeMap<>();
        private final TreeMap<Integer, Long> lowestRepeated = new TreeMap<>();
        private int distinct;
        private long repeated;
        private int gate;

        Seen(int count) {
            times = new byte[count];
        }

        /** Waits at the gate; who is stopped there stays there, so that nothing is given back or committed. */
        synchronized void take(MessageExt message, Counting consumer) {
            while (distinct >= gate || consumer.isStopped) {
                try {
                    wait();
                } catch (InterruptedException error) {
                    consumer.isStopped = true;
                }
            }
            int number = Integer.parseInt(new String(message.getBody(), 0, DIGITS, StandardCharsets.US_ASCII));
            if (times[number] == 0) {
                distinct++;
            } else {
                repeated++;
                lowestRepeated.merge(message.getQueueId(), message.getQueueOffset(), Math::min);
            }
            if (times[number] < Byte.MAX_VALUE) {
                times[number]++;
            }
            behind.merge(message.getQueueId(), message.getQueueOffset() + 1, Math::max);
            notifyAll();
        }

        synchronized void moveGate(int at) {
            gate = at;
            notifyAll();
        }

        synchronized boolean await(int count, long deadline) throws InterruptedException {
            while (distinct < count) {
                long rest = deadline - System.currentTimeMillis();
                if (rest <= 0) {
                    return false;
                }
                wait(rest);
            }
            return true;
        }

        synchronized Map<String, Object> choose(JSONArray numbers) {
            List<Object> lacking =
                numbers.stream().filter(number -> times[(Integer) number] == 0).collect(Collectors.toList());
            return Map.of("lacking", lacking);
        }

        synchronized Map<String, Object> tell() {
            List<Integer> missing = new ArrayList<>();
            for (int number = 0; number < times.length && missing.size() < 10; number++) {
                if (times[number] == 0) {
                    missing.add(number);
                }
            }
            return Map.of("distinct", distinct, "repeated", repeated, "missing", missing,
                "behind", new TreeMap<>(behind), "lowestRepeated", new TreeMap<>(lowestRepeated));
        }
    }

    /** A consumer. */
    private static final class Counting {
        final DefaultMQPushConsumer client;
        volatile boolean isStopped;

        Counting(DefaultMQPushConsumer client) {
            this.client = client;
        }
    }

    private void start(JSONObject request) throws Exception {
        Seen seen = groups.computeIfAbsent(request.getString("group"), name -> new Seen(request.getIntValue("count")));
        seen.moveGate(request.getIntValue("gate"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("nameServer"));
        consumer.setClientIP("127.0.0.1");
        consumer.setMqClientApiTimeout(Requests.PATIENCE_MS);
        consumer.setInstanceName(request.getString("name"));
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.getDefaultMQPushConsumerImpl().setPullTimeDelayMillsWhenException(200);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.subscribe(request.getString("topic"), "*");
        Counting counting = new Counting(consumer);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                seen.take(message, counting);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.put(request.getString("name"), counting);
    }

    private Object handle(JSONObject request) throws Exception {
        Seen seen = groups.get(request.getString("group"));
        switch (request.getString("do")) {
            case "start":
                start(request);
                return null;
            case "gate":
                seen.moveGate(request.getIntValue("at"));
                return null;
            case "await":
                boolean came = seen.await(request.getIntValue("count"),
                    System.currentTimeMillis() + request.getLongValue("seconds") * 1000);
                if (!came) {
                    throw new IllegalStateException("still not: " + seen.tell());
                }
                return seen.tell();
            case "tell":
                return seen.tell();
            case "lacks":
                return seen.choose(request.getJSONArray("numbers"));
            case "persist":
                consumers.get(request.getString("name")).client.getDefaultMQPushConsumerImpl().persistConsumerOffset();
                return null;
            case "stop":
                Counting stopped = consumers.remove(request.getString("name"));
                stopped.isStopped = true;
                stopped.client.shutdown();
                return null;
            default:
                throw new IllegalArgumentException("no such request: " + request);
        }
    }

    public static void main(String[] arguments) throws Exception {
        // Read by classes of the client when they are loaded. The times are shorter than a user's, not the ways.
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        Requests.serve(new CountingConsumer()::handle, SerializerFeature.DisableCircularReferenceDetect,
            SerializerFeature.WriteNonStringKeyAsString);
    }
}
