package eruca.clients;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceTransferBean;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The official client with message trace: a JSON request on the input, rows on the output.
 *
 * <p>trace (nameServer, address, broker) sends and consumes messages of every kind and gives the trace messages that
 * came of it: bodies in hex, keys. decode (hex) reads a body of trace records with the official decoder, and gives what
 * the official encoder writes for each.
 */
public final class Tracing {
    private static final int TIMEOUT_MS = 10_000;
    private static final long DEADLINE_MS = 60_000;
    private static final String TOPIC = "TracedOrders";
    private static final String TRACE_TOPIC = "TraceOfOrders";
    // Sends, decisions, and calls of the listener with their ends: nine messages, two of them twice.
    private static final int RECORDS = 8 + 4 + 2 * (9 + 2);

    private static int clients;

    private static <T extends ClientConfig> T prepare(T client, JSONObject request) {
        client.setNamesrvAddr(request.getString("nameServer"));
        client.setInstanceName("tracing-" + clients++);
        client.setPollNameServerInterval(1000);
        return client;
    }

    private static Message message(String body, String tags, String keys) {
        Message message = new Message(TOPIC, body.getBytes(StandardCharsets.UTF_8));
        if (tags != null) {
            message.setTags(tags);
        }
        if (keys != null) {
            message.setKeys(keys);
        }
        return message;
    }

    private static void send(JSONObject request) throws Exception {
        DefaultMQProducer producer = prepare(new DefaultMQProducer("TracedShop", true, TRACE_TOPIC), request);
        producer.start();
        producer.send(message("plain", null, null));
        producer.send(message("tagged", "TagA", "k1 k2"));
        producer.send(message("far", "\u6807\u7b7e", "\u043a\u043b\u044e\u0447 \ud83d\ude80"));
        Message late = message("late", "TagB", null);
        late.setDelayTimeLevel(1);
        producer.send(late);
        producer.send(Arrays.asList(message("b0", null, "kb"), message("b1", null, "kb"), message("b2", null, null)));
    }

    private static void decide(JSONObject request) throws Exception {
        TransactionMQProducer producer =
            prepare(new TransactionMQProducer(null, "TracedTill", null, true, TRACE_TOPIC), request);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (LocalTransactionState state : LocalTransactionState.values()) {
            producer.sendMessageInTransaction(message(state.name(), "TagT", "t-" + state.ordinal()), state);
        }
    }

    private static void consume(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = prepare(new DefaultMQPushConsumer("TracedBilling", true, TRACE_TOPIC), request);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        Set<String> seen = ConcurrentHashMap.newKeySet();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            String body = new String(messages.get(0).getBody(), StandardCharsets.UTF_8);
            if (seen.add(body) && body.equals("plain")) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            if (messages.get(0).getReconsumeTimes() == 0 && body.equals("tagged")) {
                throw new IllegalStateException("not at first");
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    /** The trace messages, once there are as many records in them as there must be. */
    private static List<Object> read(JSONObject request) throws Exception {
        DefaultMQPullConsumer puller = prepare(new DefaultMQPullConsumer("TraceReader"), request);
        puller.start();
        MessageQueue queue = new MessageQueue(TRACE_TOPIC, request.getString("broker"), 0);
        List<Object> rows = new ArrayList<>();
        long offset = 0;
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        for (int records = 0; records < RECORDS;) {
            PullResult result = puller.pull(queue, "*", offset, 32);
            offset = result.getNextBeginOffset();
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    rows.add(Map.of("hex", HexFormat.of().formatHex(message.getBody()), "keys", message.getKeys()));
                    for (byte value : message.getBody()) {
                        records += value == 2 ? 1 : 0;
                    }
                }
            }
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException(records + " of " + RECORDS + " trace records: " + rows);
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(50));
        }
        return rows;
    }

    private static List<Object> trace(JSONObject request) throws Exception {
        DefaultMQAdminExt admin = prepare(new DefaultMQAdminExt(TIMEOUT_MS), request);
        admin.start();
        for (String topic : List.of(TOPIC, TRACE_TOPIC)) {
            admin.createAndUpdateTopicConfig(request.getString("address"), new TopicConfig(topic, 1, 1, 6));
        }
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        while (!admin.fetchAllTopicList().getTopicList().containsAll(List.of(TOPIC, TRACE_TOPIC))) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("no routes");
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(50));
        }
        send(request);
        decide(request);
        consume(request);
        return read(request);
    }

    private static List<Object> decode(JSONObject request) {
        String body = new String(HexFormat.of().parseHex(request.getString("hex")), StandardCharsets.UTF_8);
        List<Object> rows = new ArrayList<>();
        for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(body)) {
            context.setAccessChannel(AccessChannel.LOCAL);
            TraceTransferBean written = TraceDataEncoder.encoderFromContextBean(context);
            byte[] record = written.getTransData().getBytes(StandardCharsets.UTF_8);
            rows.add(Map.of("hex", HexFormat.of().formatHex(record), "keys", new TreeSet<>(written.getTransKey())));
        }
        return rows;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        // Libraries may print; the real output is for answers only.
        System.setOut(System.err);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                JSONObject request = JSON.parseObject(line);
                List<Object> rows = request.getString("do").equals("trace") ? trace(request) : decode(request);
                for (Object row : rows) {
                    out.println(JSON.toJSONString(Map.of("row", row)));
                }
                out.println("{\"done\":" + rows.size() + "}");
            } catch (Throwable error) {
                error.printStackTrace();
                out.println(JSON.toJSONString(Map.of("error", String.valueOf(error))));
            }
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
