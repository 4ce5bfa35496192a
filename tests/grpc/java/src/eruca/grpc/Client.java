package eruca.grpc;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * A program for tests: takes one JSON object a line, does it with the Java client for gRPC, and answers with a line that has
 * the same id, and rows or an error. Lines are answered as they get done, not in order.
 */
public final class Client {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Gson GSON = new Gson();
    private static final Duration TIMEOUT = Duration.ofSeconds(10);

    private final boolean tls;
    private final PrintStream out;
    private final Map<String, AutoCloseable> started = new ConcurrentHashMap<>();
    private final Map<String, List<Map<String, Object>>> inboxes = new ConcurrentHashMap<>();
    private final Map<String, MessageView> received = new ConcurrentHashMap<>();
    private final AtomicInteger keys = new AtomicInteger();

    private Client(boolean tls, PrintStream out) {
        this.tls = tls;
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        Client client = new Client(arguments.length > 0 && arguments[0].equals("tls"), out);
        ExecutorService tasks = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            tasks.submit(() -> client.answer(request));
        }
        System.exit(0);
    }

    private void answer(JsonObject request) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", request.get("id").getAsInt());
        try {
            answer.put("rows", act(request));
        } catch (Throwable error) {
            StringBuilder text = new StringBuilder();
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                text.append(cause).append("; ");
            }
            answer.put("error", text.toString());
        }
        synchronized (out) {
            out.println(GSON.toJson(answer));
        }
    }

    private List<?> act(JsonObject request) throws Exception {
        String name = request.get("name").getAsString();
        switch (request.get("do").getAsString()) {
            case "producer":
                return startProducer(name, request);
            case "push":
                return startPush(name, request);
            case "simple":
                return startSimple(name, request);
            case "send":
                return send((Producer) started.get(name), request);
            case "recall":
                return Collections.singletonList(((Producer) started.get(name))
                    .recallMessage(request.get("topic").getAsString(), request.get("handle").getAsString())
                    .getMessageId().toString());
            case "receive":
                return receive((SimpleConsumer) started.get(name), request);
            case "ack":
                ((SimpleConsumer) started.get(name)).ack(received.get(request.get("key").getAsString()));
                return Collections.emptyList();
            case "change":
                ((SimpleConsumer) started.get(name)).changeInvisibleDuration(
                    received.get(request.get("key").getAsString()), Duration.ofMillis(request.get("invisibleMs").getAsLong()));
                return Collections.emptyList();
            case "list":
                List<Map<String, Object>> inbox = inboxes.get(name);
                synchronized (inbox) {
                    return new ArrayList<>(inbox);
                }
            case "stop":
                started.remove(name).close();
                return Collections.emptyList();
            default:
                throw new IllegalArgumentException("nobody knows how to do this: " + request);
        }
    }

    private ClientConfiguration configure(JsonObject request) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
            .setEndpoints(request.get("endpoints").getAsString()).enableSsl(tls).setRequestTimeout(TIMEOUT);
        if (request.has("accessKey")) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(
                request.get("accessKey").getAsString(), request.get("secretKey").getAsString()));
        }
        return builder.build();
    }

    private List<Map<String, Object>> openInbox(String name) {
        return inboxes.computeIfAbsent(name, any -> new ArrayList<>());
    }

    private Map<String, Object> note(String name, MessageView view) {
        Map<String, Object> row = describe(view);
        List<Map<String, Object>> inbox = openInbox(name);
        synchronized (inbox) {
            inbox.add(row);
        }
        return row;
    }

    private static Map<String, FilterExpression> readSubscriptions(JsonObject request) {
        Map<String, FilterExpression> subscriptions = new LinkedHashMap<>();
        request.getAsJsonObject("subscriptions").entrySet().forEach(entry -> {
            JsonObject filter = entry.getValue().getAsJsonObject();
            subscriptions.put(entry.getKey(), new FilterExpression(filter.get("expression").getAsString(),
                FilterExpressionType.valueOf(filter.get("type").getAsString().equals("SQL") ? "SQL92" : "TAG")));
        });
        return subscriptions;
    }

    // --- producing

    private List<?> startProducer(String name, JsonObject request) throws Exception {
        String check = request.has("check") ? request.get("check").getAsString() : "none";
        openInbox(name);
        String[] topics = GSON.fromJson(request.get("topics"), String[].class);
        started.put(name, PROVIDER.newProducerBuilder().setClientConfiguration(configure(request)).setTopics(topics)
            .setTransactionChecker(view -> {
                note(name, view);
                return check.equals("commit") ? TransactionResolution.COMMIT
                    : check.equals("rollback") ? TransactionResolution.ROLLBACK : TransactionResolution.UNKNOWN;
            }).build());
        return Collections.emptyList();
    }

    private static List<?> send(Producer producer, JsonObject request) throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        String end = request.has("transaction") ? request.get("transaction").getAsString() : "";
        for (var element : request.getAsJsonArray("messages")) {
            Message message = build(element.getAsJsonObject());
            SendReceipt receipt;
            if (end.isEmpty()) {
                receipt = producer.send(message);
            } else {
                Transaction transaction = producer.beginTransaction();
                receipt = producer.send(message, transaction);
                if (end.equals("commit")) {
                    transaction.commit();
                } else if (end.equals("rollback")) {
                    transaction.rollback();
                }
            }
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("messageId", receipt.getMessageId().toString());
            row.put("recallHandle", receipt.getRecallHandle());
            rows.add(row);
        }
        return rows;
    }

    private static Message build(JsonObject described) {
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(described.get("topic").getAsString())
            .setBody(described.get("body").getAsString().getBytes(StandardCharsets.UTF_8));
        if (described.has("tag")) {
            builder.setTag(described.get("tag").getAsString());
        }
        if (described.has("keys")) {
            builder.setKeys(GSON.fromJson(described.get("keys"), String[].class));
        }
        if (described.has("group")) {
            builder.setMessageGroup(described.get("group").getAsString());
        }
        if (described.has("deliverAt")) {
            builder.setDeliveryTimestamp(described.get("deliverAt").getAsLong());
        }
        if (described.has("properties")) {
            described.getAsJsonObject("properties").entrySet()
                .forEach(entry -> builder.addProperty(entry.getKey(), entry.getValue().getAsString()));
        }
        return builder.build();
    }

    // --- consuming

    private List<?> startPush(String name, JsonObject request) throws Exception {
        Map<String, Integer> failures = new ConcurrentHashMap<>();
        if (request.has("fail")) {
            request.getAsJsonObject("fail").entrySet()
                .forEach(entry -> failures.put(entry.getKey(), entry.getValue().getAsInt()));
        }
        long busyMs = request.has("busyMs") ? request.get("busyMs").getAsLong() : 0;
        openInbox(name);
        started.put(name, PROVIDER.newPushConsumerBuilder().setClientConfiguration(configure(request))
            .setConsumerGroup(request.get("group").getAsString()).setSubscriptionExpressions(readSubscriptions(request))
            .setMessageListener(view -> {
                Map<String, Object> row = note(name, view);
                try {
                    Thread.sleep(busyMs);
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
                boolean fails = failures.merge((String) row.get("body"), -1, Integer::sum) >= 0;
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build());
        return Collections.emptyList();
    }

    private List<?> startSimple(String name, JsonObject request) throws Exception {
        started.put(name, PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configure(request))
            .setConsumerGroup(request.get("group").getAsString()).setSubscriptionExpressions(readSubscriptions(request))
            .setAwaitDuration(Duration.ofMillis(request.get("awaitMs").getAsLong())).build());
        return Collections.emptyList();
    }

    private List<?> receive(SimpleConsumer consumer, JsonObject request) throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        Duration invisible = Duration.ofMillis(request.get("invisibleMs").getAsLong());
        for (MessageView view : consumer.receive(request.get("max").getAsInt(), invisible)) {
            String key = "m" + keys.incrementAndGet();
            received.put(key, view);
            Map<String, Object> row = describe(view);
            row.put("key", key);
            rows.add(row);
        }
        return rows;
    }

    private static Map<String, Object> describe(MessageView view) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", view.getTopic());
        row.put("body", StandardCharsets.UTF_8.decode(view.getBody()).toString());
        row.put("tag", view.getTag().orElse(null));
        row.put("keys", new TreeSet<>(view.getKeys()));
        row.put("properties", view.getProperties());
        row.put("messageId", view.getMessageId().toString());
        row.put("group", view.getMessageGroup().orElse(null));
        row.put("attempt", view.getDeliveryAttempt());
        row.put("deliverAt", view.getDeliveryTimestamp().orElse(null));
        row.put("at", System.currentTimeMillis());
        return row;
    }
}
