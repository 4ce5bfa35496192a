package eruca.interop;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Messages for a consumer group, sent by the official client: a JSON request on the input, rows on the output.
 *
 * <p>createTopic (nameServer, address, topic, queues); load (nameServer, broker, topic, queues, keys, perSecond, count)
 * begins to send k0:0, k1:0 ... k0:1, k1:1 ..., each key always to the same queue, this number of messages or without end; finish waits
 * for the last of them, or stops what has no end, and gives how many of each key the broker has taken. One thread sends
 * one message after the other and nothing is sent again by itself, so that numbers of a key are stored in order.
 */
public final class GroupFeed implements Runnable {
    private final DefaultMQProducer producer = new DefaultMQProducer("GroupFeed");
    private final JSONObject request;
    private final Map<String, Long> sent = new TreeMap<>();
    private final Thread thread = new Thread(this);
    private volatile boolean stopped;
    private volatile Exception failure;

    private GroupFeed(JSONObject request) throws Exception {
        this.request = request;
        producer.setRetryTimesWhenSendFailed(0);
        prepare(producer, request).start();
        thread.start();
    }

    private static <T extends ClientConfig> T prepare(T client, JSONObject request) {
        client.setNamesrvAddr(request.getString("nameServer"));
        client.setClientIP("127.0.0.1");
        client.setMqClientApiTimeout(Requests.PATIENCE_MS);
        return client;
    }

    @Override
    public void run() {
        int keys = request.getIntValue("keys");
        int queues = request.getIntValue("queues");
        long count = request.getLongValue("count");
        long pauseNanos = TimeUnit.SECONDS.toNanos(1) / request.getLongValue("perSecond");
        long next = System.nanoTime();
        try {
            for (long number = 0; !stopped && (count == 0 || number < count); number++) {
                int index = (int) (number % keys);
                send("k" + index, index % queues);
                next += pauseNanos;
                LockSupport.parkNanos(next - System.nanoTime());
            }
        } catch (Exception error) {
            failure = error;
        }
    }

    private void send(String key, int queue) throws Exception {
        String body = key + ":" + sent.getOrDefault(key, 0L);
        Message message = new Message(request.getString("topic"), null, key, body.getBytes(StandardCharsets.UTF_8));
        SendStatus status = producer.send(
            message, new MessageQueue(message.getTopic(), request.getString("broker"), queue), Requests.PATIENCE_MS)
            .getSendStatus();
        if (status != SendStatus.SEND_OK) {
            throw new IllegalStateException(body + ": " + status);
        }
        sent.merge(key, 1L, Long::sum);
    }

    private Map<String, Long> finish() throws Exception {
        stopped = request.getLongValue("count") == 0;
        thread.join();
        producer.shutdown();
        if (failure != null) {
            throw failure;
        }
        return sent;
    }

    private static GroupFeed feed;

    private static Object handle(JSONObject request) throws Exception {
        switch (request.getString("do")) {
            case "createTopic":
                Requests.createTopic(prepare(new DefaultMQAdminExt(Requests.PATIENCE_MS), request), request);
                return null;
            case "load":
                feed = new GroupFeed(request);
                return null;
            case "finish":
                return feed.finish();
            default:
                throw new IllegalArgumentException("no such request: " + request);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Requests.serve(GroupFeed::handle);
    }
}
