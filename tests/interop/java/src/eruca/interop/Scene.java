package eruca.interop;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.ServiceState;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.common.protocol.route.QueueData;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * One case at work: names that are its own, clients that end with it, and the facts it found.
 *
 * <p>Facts are the same on every broker and in every run: names lose what makes them unique, and the broker's address
 * is written BROKER, ours CLIENT.
 */
final class Scene implements AutoCloseable {
    static final long DEADLINE_MS = 240_000;
    static final int TIMEOUT_MS = 10_000;

    private static final AtomicInteger COUNT = new AtomicInteger();
    // Java's broker may tell the name server of two new topics with one version, and the second is not heard then.
    private static final Object ROUTES = new Object();
    private static final Map<String, DefaultMQAdminExt> ADMINS = new ConcurrentHashMap<>();

    // What a case was told besides where to work.
    final JSONObject request;
    final String nameServer;
    final String broker;
    final String address;
    final String cluster = "DefaultCluster";
    final DefaultMQAdminExt admin;

    private final String suffix = "-" + ProcessHandle.current().pid() + "x" + COUNT.incrementAndGet() + "z";
    private final Map<String, Object> facts = new LinkedHashMap<>();
    private final Deque<Step> endings = new ArrayDeque<>();
    private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    private DefaultMQProducer producer;
    private DefaultMQPullConsumer puller;

    /** Something that may fail. */
    interface Step {
        void run() throws Exception;
    }

    /** Something that is so or not yet. */
    interface Check {
        boolean isSo() throws Exception;
    }

    Scene(JSONObject request) throws Exception {
        this.request = request;
        nameServer = request.getString("nameServer");
        broker = request.getString("broker");
        address = request.getString("address");
        synchronized (ADMINS) {
            DefaultMQAdminExt known = ADMINS.get(nameServer);
            if (known == null) {
                known = new DefaultMQAdminExt(TIMEOUT_MS);
                prepare(known);
                known.start();
                ADMINS.put(nameServer, known);
            }
            admin = known;
        }
    }

    // --- names and facts ----------------------------------------------------------------------------------------

    /** A name that no other case has. */
    String name(String kind) {
        return kind + suffix;
    }

    /** Is it a name that some case has made? */
    static boolean isName(String name) {
        return name.matches(".*-\\d+x\\d+z");
    }

    /** A new topic with this number of queues, which everybody can see. */
    String topic(int queues) throws Exception {
        return topic("topic", queues);
    }

    String topic(String kind, int queues) throws Exception {
        String topic = name(kind);
        configure(new TopicConfig(topic, queues, queues, 6));
        return topic;
    }

    /** Makes or changes a topic; everybody can see it when it returns. */
    void configure(TopicConfig config) throws Exception {
        synchronized (ROUTES) {
            admin.createAndUpdateTopicConfig(address, config);
            await("route of " + config.getTopicName(), () -> isKnown(config));
        }
    }

    private boolean isKnown(TopicConfig config) throws Exception {
        try {
            QueueData known = admin.examineTopicRouteInfo(config.getTopicName()).getQueueDatas().get(0);
            return known.getWriteQueueNums() == config.getWriteQueueNums()
                && known.getReadQueueNums() == config.getReadQueueNums() && known.getPerm() == config.getPerm();
        } catch (MQClientException error) {
            return false;
        }
    }

    /** Does what makes a topic by the way; everybody can see it when it returns. */
    void makeTopic(String topic, Step maker) throws Exception {
        synchronized (ROUTES) {
            maker.run();
            await("route of " + topic, () -> queuesOf(topic) > 0);
        }
    }

    /** How many queues the name server knows of, 0 when there is no such topic. */
    int queuesOf(String topic) throws Exception {
        try {
            return admin.examineTopicRouteInfo(topic).getQueueDatas().stream()
                .mapToInt(QueueData::getWriteQueueNums).sum();
        } catch (MQClientException error) {
            return 0;
        }
    }

    MessageQueue queue(String topic, int number) {
        return new MessageQueue(topic, broker, number);
    }

    void fact(String name, Object value) {
        facts.put(name, plain(value));
    }

    Map<String, Object> facts() {
        return facts;
    }

    private Object plain(Object value) {
        if (value instanceof Map) {
            Map<String, Object> copy = new LinkedHashMap<>();
            ((Map<?, ?>) value).forEach((key, item) -> copy.put(String.valueOf(plain(String.valueOf(key))), plain(item)));
            return copy;
        }
        if (value instanceof Collection) {
            return ((Collection<?>) value).stream().map(this::plain).collect(Collectors.toList());
        }
        if (value instanceof Enum) {
            return ((Enum<?>) value).name();
        }
        if (value instanceof String) {
            return ((String) value).replace(suffix, "").replace(address, "BROKER")
                .replaceAll("127\\.0\\.0\\.1:\\d+", "CLIENT");
        }
        return value;
    }

    /** What a refused call was told: a code and a text. It is an error when the call is not refused. */
    Map<String, Object> refusal(Step call) throws Exception {
        try {
            call.run();
        } catch (Exception error) {
            return describe(error);
        }
        throw new IllegalStateException("the call was not refused");
    }

    private static Map<String, Object> describe(Exception error) throws Exception {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException) {
                MQBrokerException refused = (MQBrokerException) cause;
                return row("code", refused.getResponseCode(), "remark", firstLine(refused.getErrorMessage()));
            }
        }
        if (error instanceof MQClientException) {
            MQClientException refused = (MQClientException) error;
            return row("code", refused.getResponseCode(), "remark", firstLine(refused.getErrorMessage()));
        }
        throw error;
    }

    private static String firstLine(String text) {
        return text == null ? null : text.split("\n")[0];
    }

    static Map<String, Object> row(Object... namesAndValues) {
        Map<String, Object> row = new LinkedHashMap<>();
        for (int at = 0; at < namesAndValues.length; at += 2) {
            row.put((String) namesAndValues[at], namesAndValues[at + 1]);
        }
        return row;
    }

    // --- time ---------------------------------------------------------------------------------------------------

    /** Ask again until it is so. */
    static void await(String what, Check check) throws Exception {
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        while (!check.isSo()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("waited in vain for " + what);
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(10));
        }
    }

    /** The broker's clock, which is also ours, has gone on by at least this much when it returns. */
    static void letPass(long millis) throws Exception {
        long from = System.currentTimeMillis();
        await("the clock", () -> System.currentTimeMillis() >= from + millis);
    }

    // --- clients ------------------------------------------------------------------------------------------------

    /** Let a client find the name server, have its own connections, and not wait for what a user would not notice. */
    <T extends ClientConfig> T prepare(T client) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName("case" + suffix + "-" + COUNT.incrementAndGet());
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        client.setPersistConsumerOffsetInterval(500);
        client.setMqClientApiTimeout(TIMEOUT_MS);
        return client;
    }

    void atEnd(Step ending) {
        endings.push(ending);
    }

    /** The case's producer. */
    DefaultMQProducer producer() throws Exception {
        if (producer == null) {
            producer = start(new DefaultMQProducer(name("producers")));
        }
        return producer;
    }

    <T extends DefaultMQProducer> T start(T client) throws Exception {
        prepare(client);
        client.setSendMsgTimeout(TIMEOUT_MS);
        client.start();
        atEnd(client::shutdown);
        return client;
    }

    /** The case's pull consumer. */
    DefaultMQPullConsumer puller() throws Exception {
        if (puller == null) {
            puller = puller(name("pullers"));
        }
        return puller;
    }

    DefaultMQPullConsumer puller(String group) throws Exception {
        DefaultMQPullConsumer client = prepare(new DefaultMQPullConsumer(group));
        client.setConsumerPullTimeoutMillis(TIMEOUT_MS);
        client.start();
        atEnd(client::shutdown);
        return client;
    }

    DefaultLitePullConsumer litePuller(String group) {
        DefaultLitePullConsumer client = prepare(new DefaultLitePullConsumer(group));
        client.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        client.setAutoCommitIntervalMillis(1000);
        client.setPollTimeoutMillis(500);
        return client;
    }

    DefaultLitePullConsumer start(DefaultLitePullConsumer client) throws Exception {
        client.start();
        atEnd(() -> {
            if (client.isRunning()) {
                client.shutdown();
            }
        });
        return client;
    }

    /** A push consumer that starts with the first message and is not started yet. */
    DefaultMQPushConsumer consumer(String group) {
        return consumer(group, null);
    }

    DefaultMQPushConsumer consumer(String group, RPCHook hook) {
        DefaultMQPushConsumer client = prepare(new DefaultMQPushConsumer(null, group, hook));
        client.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        client.setConsumeThreadMin(2);
        client.setConsumeThreadMax(2);
        return client;
    }

    DefaultMQPushConsumer start(DefaultMQPushConsumer client) throws Exception {
        if (client.getMessageModel() == MessageModel.CLUSTERING) {
            // An administrator asks for the group by the route of this topic.
            makeTopic(MixAll.getRetryTopic(client.getConsumerGroup()), client::start);
        } else {
            client.start();
        }
        consumers.add(client);
        atEnd(client::shutdown);
        return client;
    }

    /** A started push consumer that puts everything into an inbox. */
    DefaultMQPushConsumer consume(String group, String topic, String tags, Inbox inbox) throws Exception {
        DefaultMQPushConsumer client = consumer(group);
        client.subscribe(topic, tags);
        client.registerMessageListener(into(inbox));
        return start(client);
    }

    static MessageListenerConcurrently into(Inbox inbox) {
        return (messages, context) -> {
            inbox.add(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    /** Sends a request of our own making and returns the answer. */
    RemotingCommand call(int code, CommandCustomHeader header, byte[] body) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, header);
        request.setBody(body);
        return producer().getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl().getRemotingClient()
            .invokeSync(address, request, TIMEOUT_MS);
    }

    // --- everyday work ------------------------------------------------------------------------------------------

    static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    static Message message(String topic, String tags, String body) {
        return new Message(topic, tags, body.getBytes(StandardCharsets.UTF_8));
    }

    /** Sends bodies to one queue, one after the other; they can be seen there when it returns. */
    List<SendResult> send(MessageQueue queue, String... bodies) throws Exception {
        List<SendResult> results = new ArrayList<>();
        for (String body : bodies) {
            results.add(producer().send(message(queue.getTopic(), body), queue));
        }
        awaitSeen(results.get(results.size() - 1));
        return results;
    }

    /** The same with messages that have more than a body. */
    SendResult send(MessageQueue queue, Message message) throws Exception {
        return awaitSeen(producer().send(message, queue));
    }

    /** Sends prefix0, prefix1 and so on to the queues in turn. */
    void sendMany(String topic, int queues, String prefix, int count) throws Exception {
        SendResult last = null;
        for (int number = 0; number < count; number++) {
            last = producer().send(message(topic, prefix + number), queue(topic, number % queues));
        }
        awaitSeen(last);
    }

    /** Java's broker answers before the message is in its queue; all that was stored before it is there too then. */
    SendResult awaitSeen(SendResult result) throws Exception {
        int more = result.getMsgId().split(",").length;
        await("what was sent", () -> admin.maxOffset(result.getMessageQueue()) >= result.getQueueOffset() + more);
        return result;
    }

    /** All messages of one queue; there are at least as many as wanted when it returns. */
    List<MessageExt> read(MessageQueue queue, int wanted) throws Exception {
        await(wanted + " messages", () -> puller().maxOffset(queue) >= wanted);
        List<MessageExt> found = new ArrayList<>();
        long max = puller().maxOffset(queue);
        for (long offset = puller().minOffset(queue); offset < max;) {
            PullResult result = puller().pull(queue, "*", offset, 32);
            if (result.getPullStatus() == PullStatus.FOUND) {
                found.addAll(result.getMsgFoundList());
            } else if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException("stuck in " + queue + " at " + offset + ": " + result);
            }
            offset = result.getNextBeginOffset();
        }
        return found;
    }

    MessageExt readOne(MessageQueue queue) throws Exception {
        List<MessageExt> found = read(queue, 1);
        if (found.size() != 1) {
            throw new IllegalStateException(queue + " has " + found.size() + " messages");
        }
        return found.get(0);
    }

    /** The offset a group has committed, as the broker knows it; -1 when it has none. */
    long committed(String group, MessageQueue queue) throws Exception {
        var header = new org.apache.rocketmq.common.protocol.header.QueryConsumerOffsetRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(queue.getTopic());
        header.setQueueId(queue.getQueueId());
        RemotingCommand answer = call(14, header, null);
        return answer.getCode() == 0 ? Long.parseLong(answer.getExtFields().get("offset")) : -1;
    }

    /** Wait for a group's progress; its consumers would not tell before ten seconds after their start. */
    void awaitCommitted(String group, MessageQueue queue, long offset) throws Exception {
        await("offset " + offset + " of " + group, () -> {
            for (DefaultMQPushConsumer consumer : consumers) {
                if (consumer.getDefaultMQPushConsumerImpl().getServiceState() == ServiceState.RUNNING) {
                    consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
                }
            }
            return committed(group, queue) == offset;
        });
    }

    @Override
    public void close() {
        while (!endings.isEmpty()) {
            try {
                endings.pop().run();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }
    }
}
