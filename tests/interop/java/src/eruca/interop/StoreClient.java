package eruca.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.protocol.ResponseCode;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The official client and admin API, driven line by line: a JSON request on the input, JSON rows on the output.
 *
 * <p>A request is {"do": name, "link": which connection, ...}. The answer is one {"row": ...} for each result, then
 * {"done": number of rows} or {"error": text}. Links are opened by "connect"; each has its own client instance, so a
 * broker that comes back on another port is looked up afresh.
 */
public final class StoreClient {
    private static final int PULL_COUNT = 32;
    private static final long TIMEOUT_MS = 10_000;
    private static final SerializerFeature[] STYLE = {
        SerializerFeature.WriteMapNullValue, SerializerFeature.DisableCircularReferenceDetect
    };

    private final PrintStream out;
    private final Map<String, Link> links = new HashMap<>();
    private int rows;

    private StoreClient(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        // Libraries may print; the real output is for answers only.
        System.setOut(System.err);
        new StoreClient(out).serve(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        // Clients leave threads behind that nobody waits for.
        Runtime.getRuntime().halt(0);
    }

    private void serve(BufferedReader input) throws Exception {
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Map<String, Object> last = new LinkedHashMap<>();
            rows = 0;
            try {
                handle(JSON.parseObject(line));
                last.put("done", rows);
            } catch (Exception error) {
                error.printStackTrace();
                last.put("error", String.valueOf(error));
            }
            write(last);
            out.flush();
        }
    }

    private void handle(JSONObject request) throws Exception {
        String name = request.getString("link");
        String action = request.getString("do");
        if (action.equals("connect")) {
            links.put(name, new Link(request));
            return;
        }
        Link link = links.get(name);
        if (link == null) {
            throw new IllegalArgumentException("no link " + name);
        }
        switch (action) {
            case "close": links.remove(name).close(); break;
            case "dump": dump(link, request); break;
            case "await": await(link, request); break;
            case "search": search(link, request); break;
            case "key": query(link, request, false); break;
            case "unique": query(link, request, true); break;
            case "view": row(describe(link.admin.viewMessage(request.getString("id")))); break;
            case "send": send(link, request.getJSONArray("messages")); break;
            case "batch": sendBatch(link, request.getJSONArray("messages")); break;
            case "topics": row(link.admin.getAllTopicConfig(link.address, TIMEOUT_MS)); break;
            case "groups": row(link.admin.getAllSubscriptionGroup(link.address, TIMEOUT_MS)); break;
            case "committed": committed(link, request); break;
            default: throw new IllegalArgumentException("no such action: " + action);
        }
    }

    /** One connection to one broker: an admin client, a puller and a producer. */
    private static final class Link {
        final String broker;
        final String address;
        final DefaultMQAdminExt admin = new DefaultMQAdminExt(TIMEOUT_MS);
        final DefaultMQPullConsumer puller;
        final DefaultMQProducer producer = new DefaultMQProducer("InteropProducer");

        Link(JSONObject request) throws Exception {
            String names = request.getString("nameServer");
            String instance = "link-" + System.nanoTime();
            broker = request.getString("broker");
            address = request.getString("address");
            puller = new DefaultMQPullConsumer(request.getString("group"));
            admin.setNamesrvAddr(names);
            admin.setInstanceName(instance + "-admin");
            admin.start();
            puller.setNamesrvAddr(names);
            puller.setInstanceName(instance);
            puller.setConsumerPullTimeoutMillis(TIMEOUT_MS);
            puller.start();
            producer.setNamesrvAddr(names);
            producer.setInstanceName(instance);
            producer.setSendMsgTimeout((int) TIMEOUT_MS);
            producer.start();
        }

        MessageQueue queue(String topic, int number) {
            return new MessageQueue(topic, broker, number);
        }

        void close() {
            producer.shutdown();
            puller.shutdown();
            admin.shutdown();
        }
    }

    // --- reading ------------------------------------------------------------------------------------------------

    /** Every queue of the topics with its bounds, each followed by all its messages with the wanted tags. */
    private void dump(Link link, JSONObject request) throws Exception {
        String tags = request.containsKey("tags") ? request.getString("tags") : "*";
        Map<String, TopicConfig> known =
            link.admin.getAllTopicConfig(link.address, TIMEOUT_MS).getTopicConfigTable();
        for (Object item : request.getJSONArray("topics")) {
            String topic = (String) item;
            TopicConfig config = known.get(topic);
            if (config == null) {
                throw new IllegalArgumentException("the broker does not know topic " + topic);
            }
            int queues = Math.max(config.getReadQueueNums(), config.getWriteQueueNums());
            for (int number = 0; number < queues; number++) {
                dumpQueue(link, link.queue(topic, number), tags);
            }
        }
    }

    private void dumpQueue(Link link, MessageQueue queue, String tags) throws Exception {
        long min = link.puller.minOffset(queue);
        long max = link.puller.maxOffset(queue);
        Map<String, Object> bounds = new LinkedHashMap<>();
        bounds.put("topic", queue.getTopic());
        bounds.put("queueId", queue.getQueueId());
        bounds.put("min", min);
        bounds.put("max", max);
        row(bounds);
        for (long offset = min; offset < max;) {
            PullResult result = link.puller.pull(queue, tags, offset, PULL_COUNT);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    row(describe(message));
                }
            } else if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException("stuck in " + queue + " at " + offset + ": " + result);
            }
            offset = result.getNextBeginOffset();
        }
    }

    /** Wait in a held pull until the queue has grown to an offset. */
    private void await(Link link, JSONObject request) throws Exception {
        MessageQueue queue = link.queue(request.getString("topic"), request.getIntValue("queueId"));
        long wanted = request.getLongValue("offset");
        long deadline = System.nanoTime() + request.getLongValue("seconds") * 1_000_000_000L;
        while (link.puller.maxOffset(queue) < wanted) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(queue + " did not grow to " + wanted);
            }
            link.puller.pullBlockIfNotFound(queue, "*", link.puller.maxOffset(queue), 1);
        }
    }

    /** The offset the broker gives for each of the times. */
    private void search(Link link, JSONObject request) throws Exception {
        MessageQueue queue = link.queue(request.getString("topic"), request.getIntValue("queueId"));
        for (Object time : request.getJSONArray("times")) {
            row(link.puller.searchOffset(queue, ((Number) time).longValue()));
        }
    }

    /** Messages by key or by unique id; none is an answer too. */
    private void query(Link link, JSONObject request, boolean unique) throws Exception {
        String topic = request.getString("topic");
        String key = request.getString("key");
        long begin = request.getLongValue("begin");
        long end = request.containsKey("end") ? request.getLongValue("end") : Long.MAX_VALUE;
        int most = request.containsKey("most") ? request.getIntValue("most") : 64;
        QueryResult result;
        try {
            result = unique
                ? link.admin.queryMessageByUniqKey(topic, key, most, begin, end)
                : link.admin.queryMessage(topic, key, most, begin, end);
        } catch (MQClientException error) {
            if (error.getResponseCode() == ResponseCode.NO_MESSAGE) {
                return;
            }
            throw error;
        }
        for (MessageExt message : result.getMessageList()) {
            row(describe(message));
        }
    }

    /** The committed offset of the link's group in each queue of a topic, -1 where there is none. */
    private void committed(Link link, JSONObject request) throws Exception {
        for (int number = 0; number < request.getIntValue("queues"); number++) {
            row(link.puller.fetchConsumeOffset(link.queue(request.getString("topic"), number), true));
        }
    }

    // --- writing ------------------------------------------------------------------------------------------------

    private void send(Link link, JSONArray messages) throws Exception {
        for (Object item : messages) {
            JSONObject wanted = (JSONObject) item;
            Message message = build(wanted);
            SendResult result = link.producer.send(message, link.queue(message.getTopic(), wanted.getIntValue("queueId")));
            row(describe(result));
        }
    }

    private void sendBatch(Link link, JSONArray messages) throws Exception {
        List<Message> batch = new ArrayList<>();
        for (Object item : messages) {
            batch.add(build((JSONObject) item));
        }
        int queueId = messages.getJSONObject(0).getIntValue("queueId");
        row(describe(link.producer.send(batch, link.queue(batch.get(0).getTopic(), queueId))));
    }

    private static Message build(JSONObject wanted) {
        Message message = new Message(wanted.getString("topic"), Base64.getDecoder().decode(wanted.getString("body")));
        if (wanted.containsKey("tags")) {
            message.setTags(wanted.getString("tags"));
        }
        if (wanted.containsKey("keys")) {
            message.setKeys(wanted.getString("keys"));
        }
        if (wanted.containsKey("delay")) {
            message.setDelayTimeLevel(wanted.getIntValue("delay"));
        }
        message.setFlag(wanted.getIntValue("flag"));
        JSONObject properties = wanted.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((name, value) -> message.putUserProperty(name, (String) value));
        }
        return message;
    }

    // --- answers ------------------------------------------------------------------------------------------------

    private static Map<String, Object> describe(SendResult result) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("status", result.getSendStatus().name());
        row.put("queueId", result.getMessageQueue().getQueueId());
        row.put("queueOffset", result.getQueueOffset());
        row.put("msgId", result.getMsgId());
        row.put("offsetMsgId", result.getOffsetMsgId());
        return row;
    }

    private static Map<String, Object> describe(MessageExt message) throws Exception {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", message.getTopic());
        row.put("queueId", message.getQueueId());
        row.put("queueOffset", message.getQueueOffset());
        row.put("commitLogOffset", message.getCommitLogOffset());
        row.put("storeSize", message.getStoreSize());
        row.put("msgId", message.getMsgId());
        row.put("offsetMsgId",
            message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId());
        row.put("sysFlag", message.getSysFlag());
        row.put("flag", message.getFlag());
        row.put("bodyCRC", message.getBodyCRC());
        row.put("reconsumeTimes", message.getReconsumeTimes());
        row.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        row.put("bornTimestamp", message.getBornTimestamp());
        row.put("storeTimestamp", message.getStoreTimestamp());
        row.put("bornHost", packed(message.getBornHost()));
        row.put("storeHost", packed(message.getStoreHost()));
        row.put("tags", message.getTags());
        row.put("keys", message.getKeys());
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        // The client adds these two to what the broker sent.
        properties.remove("MIN_OFFSET");
        properties.remove("MAX_OFFSET");
        row.put("properties", properties);
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        row.put("bodyLen", body.length);
        row.put("bodySha256", hex(MessageDigest.getInstance("SHA-256").digest(body)));
        return row;
    }

    /** A host as a record holds it, in hexadecimal: 4 or 16 bytes of address, 4 of port. */
    private static String packed(SocketAddress host) {
        InetSocketAddress address = (InetSocketAddress) host;
        return hex(address.getAddress().getAddress()) + String.format("%08x", address.getPort());
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte value : bytes) {
            text.append(String.format("%02x", value));
        }
        return text.toString();
    }

    private void row(Object value) {
        write(Map.of("row", value));
        rows++;
    }

    private void write(Map<String, Object> line) {
        out.println(JSON.toJSONString(line, STYLE));
    }
}
