package eruca.clients;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The official allocation strategies: a line {"cases": [...]} on the input, one {"row": ...} for each case on the output.
 *
 * <p>Queues and clients are sorted here, by the official comparison. A row names them by their place in the request:
 * {"name": of the strategy, "queues": their order, "clients": their order, "parts": one list of queues for each asked
 * client, null where the strategy raises}.
 */
public final class Allocation {
    private static final SerializerFeature[] STYLE = {
        SerializerFeature.WriteMapNullValue, SerializerFeature.DisableCircularReferenceDetect
    };

    private Allocation() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        // Libraries may print; the real output is for answers only.
        System.setOut(System.err);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JSONArray cases = JSON.parseObject(line).getJSONArray("cases");
            for (int i = 0; i < cases.size(); i++) {
                write(out, "row", solve(cases.getJSONObject(i)));
            }
            write(out, "done", cases.size());
            out.flush();
        }
    }

    private static void write(PrintStream out, String key, Object value) {
        out.println(JSON.toJSONString(Collections.singletonMap(key, value), STYLE));
    }

    private static Map<String, Object> solve(JSONObject given) {
        List<MessageQueue> queues = new ArrayList<>();
        Map<MessageQueue, Integer> places = new HashMap<>();
        for (Object row : given.getJSONArray("queues")) {
            JSONArray fields = (JSONArray) row;
            MessageQueue queue = new MessageQueue(fields.getString(0), fields.getString(1), fields.getIntValue(2));
            places.put(queue, queues.size());
            queues.add(queue);
        }
        AllocateMessageQueueStrategy strategy = build(given, queues);
        List<String> unsorted = given.getJSONArray("clients").toJavaList(String.class);
        List<Integer> order = new ArrayList<>();
        for (int i = 0; i < unsorted.size(); i++) {
            order.add(i);
        }
        order.sort(Comparator.comparing(unsorted::get));
        List<String> clients = new ArrayList<>(unsorted);
        Collections.sort(clients);
        Collections.sort(queues);

        List<List<Integer>> parts = new ArrayList<>();
        for (String client : given.getJSONArray("asked").toJavaList(String.class)) {
            try {
                parts.add(locate(strategy.allocate("GroupA", client, queues, clients), places));
            } catch (IllegalArgumentException refused) {
                parts.add(null);
            }
        }
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("name", strategy.getName());
        row.put("queues", locate(queues, places));
        row.put("clients", order);
        row.put("parts", parts);
        return row;
    }

    private static List<Integer> locate(List<MessageQueue> queues, Map<MessageQueue, Integer> places) {
        List<Integer> found = new ArrayList<>();
        for (MessageQueue queue : queues) {
            found.add(places.get(queue));
        }
        return found;
    }

    private static AllocateMessageQueueStrategy build(JSONObject given, List<MessageQueue> queues) {
        switch (given.getString("rule")) {
            case "average":
                return new AllocateMessageQueueAveragely();
            case "circle":
                return new AllocateMessageQueueAveragelyByCircle();
            case "config":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(new ArrayList<>(queues.subList(0, given.getIntValue("configured"))));
                return config;
            case "room":
                AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
                room.setConsumeridcs(new HashSet<>(given.getJSONArray("rooms").toJavaList(String.class)));
                return room;
            case "hash":
                return new AllocateMessageQueueConsistentHash(given.getIntValue("virtualNodes"));
            case "crowded":
                // So few places that clients meet on them.
                int size = given.getIntValue("ring");
                return new AllocateMessageQueueConsistentHash(
                    given.getIntValue("virtualNodes"), key -> Math.floorMod(key.hashCode(), size));
            case "nearby":
                return new AllocateMachineRoomNearby(build(given.getJSONObject("inner"), queues), new Prefixes());
            default:
                throw new IllegalStateException(given.getString("rule"));
        }
    }

    /** Names of brokers and clients begin with their room and a dash. */
    private static final class Prefixes implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return cut(queue.getBrokerName());
        }

        @Override
        public String consumerDeployIn(String client) {
            return cut(client);
        }

        private static String cut(String name) {
            int end = name.indexOf('-');
            return end < 0 ? name : name.substring(0, end);
        }
    }
}
