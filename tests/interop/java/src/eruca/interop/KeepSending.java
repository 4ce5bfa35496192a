package eruca.interop;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * A producer of the official client that sends without end, and counts: a JSON request on the input, rows on the output.
 *
 * <p>start (name, nameServer or nothing, topic) and stop; status gives how many sends each broker took, how many failed
 * after the client's own retries, and the queues by broker that the producer knows; createTopic makes a topic on one
 * broker; domain says where the HTTP address server is for producers without a name server.
 */
public final class KeepSending {
    private static final int TIMEOUT_MS = 10_000;

    private final Map<String, Sender> senders = new ConcurrentHashMap<>();

    /** One producer and its thread. */
    private static final class Sender implements Runnable {
        final DefaultMQProducer producer;
        final String topic;
        final Map<String, AtomicLong> taken = new ConcurrentHashMap<>();
        final List<String> failures = new CopyOnWriteArrayList<>();
        final AtomicLong longestMs = new AtomicLong();
        final Thread thread = new Thread(this);
        volatile boolean stopped;

        Sender(JSONObject request) throws Exception {
            topic = request.getString("topic");
            producer = prepare(new DefaultMQProducer("KeepSending"), request.getString("nameServer"));
            producer.start();
            thread.start();
        }

        @Override
        public void run() {
            for (long number = 0; !stopped; number++) {
                long began = System.nanoTime();
                try {
                    SendResult result = producer.send(
                        new Message(topic, Long.toString(number).getBytes(StandardCharsets.UTF_8)));
                    if (result.getSendStatus() != SendStatus.SEND_OK) {
                        failures.add(String.valueOf(result));
                    }
                    taken.computeIfAbsent(result.getMessageQueue().getBrokerName(), name -> new AtomicLong())
                        .incrementAndGet();
                } catch (Exception error) {
                    failures.add(String.valueOf(error));
                }
                longestMs.accumulateAndGet(TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began), Math::max);
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(2));
            }
        }

        Map<String, Object> status() {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("taken", new TreeMap<>(taken));
            row.put("failed", failures.size());
            row.put("failures", failures.stream().limit(5).collect(Collectors.toList()));
            row.put("longestMs", longestMs.get());
            TopicPublishInfo known = producer.getDefaultMQProducerImpl().getTopicPublishInfoTable().get(topic);
            row.put("queues", known == null ? Map.of() : known.getMessageQueueList().stream()
                .collect(Collectors.groupingBy(queue -> queue.getBrokerName(), TreeMap::new, Collectors.counting())));
            return row;
        }
    }

    private static int clients;

    private static synchronized <T extends ClientConfig> T prepare(T client, String nameServer) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName("keep-sending-" + clients++);
        client.setPollNameServerInterval(200);
        client.setHeartbeatBrokerInterval(1000);
        return client;
    }

    private Object handle(JSONObject request) throws Exception {
        String name = request.getString("name");
        switch (request.getString("do")) {
            case "start":
                senders.put(name, new Sender(request));
                return null;
            case "status":
                return senders.get(name).status();
            case "stop":
                Sender sender = senders.remove(name);
                sender.stopped = true;
                sender.thread.join();
                sender.producer.shutdown();
                return sender.status();
            case "createTopic":
                Requests.createTopic(
                    prepare(new DefaultMQAdminExt(TIMEOUT_MS), request.getString("nameServer")), request);
                return null;
            case "domain":
                System.setProperty("rocketmq.namesrv.domain", request.getString("domain"));
                return null;
            default:
                throw new IllegalArgumentException("no such request: " + request);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Requests.serve(new KeepSending()::handle);
    }
}
