package eruca.interop;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.slf4j.LoggerFactory;

/**
 * The official client with the hook that signs: does one thing with one account, and tells what came of it.
 *
 * <p>A request is {"do": what, "accessKey": ..., "secretKey": ..., "nameServer": ..., "address": ..., "broker": ...,
 * "topic": ..., "group": ..., "body": ...}; without an access key nothing is signed. The row is {"result": text} or
 * {"code": number, "problem": text}.
 */
public final class Accounts {
    private static final int TIMEOUT_MS = 20_000;

    private Accounts() {}

    public static void main(String[] arguments) throws Exception {
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        ((Logger) LoggerFactory.getLogger(Logger.ROOT_LOGGER_NAME)).setLevel(Level.OFF);
        Requests.serve(Accounts::handle, SerializerFeature.WriteMapNullValue);
    }

    private static Object handle(JSONObject request) throws Exception {
        Map<String, Object> row = new LinkedHashMap<>();
        try {
            row.put("result", act(request));
        } catch (MQBrokerException | MQClientException error) {
            Throwable cause = error;
            while (cause.getCause() != null && !(cause instanceof MQBrokerException)) {
                cause = cause.getCause();
            }
            if (cause instanceof MQBrokerException) {
                row.put("code", ((MQBrokerException) cause).getResponseCode());
                row.put("problem", ((MQBrokerException) cause).getErrorMessage());
            } else {
                row.put("code", cause instanceof MQClientException ? ((MQClientException) cause).getResponseCode() : -1);
                row.put("problem", String.valueOf(cause.getMessage()));
            }
        }
        return row;
    }

    private static String act(JSONObject request) throws Exception {
        switch (request.getString("do")) {
            case "send": return send(request, false);
            case "batch": return send(request, true);
            case "transaction": return decide(request);
            case "createTopic": return createTopic(request);
            case "consume": return consume(request);
            default: return read(request);
        }
    }

    private static RPCHook hook(JSONObject request) {
        String key = request.getString("accessKey");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, request.getString("secretKey")));
    }

    private static <T extends ClientConfig> T prepare(T client, JSONObject request) {
        client.setNamesrvAddr(request.getString("nameServer"));
        // Clients with the same name share connections, and with them the hook.
        client.setInstanceName(UUID.randomUUID().toString());
        client.setVipChannelEnabled(false);
        return client;
    }

    private static Message message(JSONObject request, String more) {
        return new Message(request.getString("topic"), (request.getString("body") + more).getBytes());
    }

    private static String send(JSONObject request, boolean batch) throws Exception {
        DefaultMQProducer producer = prepare(new DefaultMQProducer("producers", hook(request)), request);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.start();
        try {
            if (!batch) {
                return producer.send(message(request, "")).getSendStatus().name();
            }
            List<Message> messages = new ArrayList<>(List.of(message(request, " 1"), message(request, " 2")));
            return producer.send(messages).getSendStatus().name();
        } finally {
            producer.shutdown();
        }
    }

    private static String decide(JSONObject request) throws Exception {
        TransactionMQProducer producer =
            prepare(new TransactionMQProducer(null, "producers", hook(request)), request);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message half, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt half) {
                return LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        producer.start();
        try {
            return producer.sendMessageInTransaction(message(request, ""), null).getLocalTransactionState().name();
        } finally {
            producer.shutdown();
        }
    }

    private static String createTopic(JSONObject request) throws Exception {
        DefaultMQAdminExt admin = prepare(new DefaultMQAdminExt(hook(request), TIMEOUT_MS), request);
        admin.start();
        try {
            admin.createAndUpdateTopicConfig(
                request.getString("address"), new TopicConfig(request.getString("topic"), 1, 1, 6));
            return "created";
        } finally {
            admin.shutdown();
        }
    }

    /** Waits for one message as a member of the group. */
    private static String consume(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = prepare(
            new DefaultMQPushConsumer(request.getString("group"), hook(request), new AllocateMessageQueueAveragely()),
            request);
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> seen.add(new String(message.getBody())));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            return String.valueOf(seen.poll(request.getIntValue("seconds"), TimeUnit.SECONDS));
        } finally {
            consumer.shutdown();
        }
    }

    /** Requests of a consumer about one queue. */
    private static String read(JSONObject request) throws Exception {
        DefaultMQPullConsumer consumer =
            prepare(new DefaultMQPullConsumer(request.getString("group"), hook(request)), request);
        consumer.start();
        try {
            String topic = request.getString("topic");
            consumer.fetchSubscribeMessageQueues(topic);
            MessageQueue queue = new MessageQueue(topic, request.getString("broker"), 0);
            switch (request.getString("do")) {
                case "pull": return consumer.pull(queue, "*", 0, 32).getPullStatus().name();
                case "commit":
                    consumer.getDefaultMQPullConsumerImpl().updateConsumeOffsetToBroker
                        (queue, request.getIntValue("offset"), false);
                    return "committed";
                case "end": return String.valueOf(consumer.maxOffset(queue) >= 0);
                default: throw new IllegalArgumentException("no such action: " + request);
            }
        } finally {
            consumer.shutdown();
        }
    }
}
