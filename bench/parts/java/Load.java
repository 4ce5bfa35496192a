import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The official client under the same load as the Python clients: same scenarios, same arguments, same JSON. */
public final class Load {
    private static final int CONSUME_THREADS = 20;
    private static final int BATCH = 100;
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final String scenario;
    private final Map<String, String> options = new HashMap<>();
    private final String topic;
    private final int count;
    private final int warmup;
    private final byte[] body;
    private double[] begun = new double[3];
    private double[] ended = new double[3];

    private Load(String[] arguments) {
        scenario = arguments[0];
        for (int at = 1; at + 1 < arguments.length; at += 2) {
            options.put(arguments[at].substring(2), arguments[at + 1]);
        }
        topic = options.get("topic");
        count = number("count", 0);
        warmup = number("warmup", 0);
        body = new byte[number("size", 128)];
        Arrays.fill(body, (byte) 'x');
    }

    public static void main(String[] arguments) throws Exception {
        Load load = new Load(arguments);
        switch (load.scenario) {
            case "create": load.create(); break;
            case "fill": load.fill(); break;
            case "consume": load.consume(); break;
            default: load.send();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private int number(String name, int otherwise) {
        return options.containsKey(name) ? (int) Double.parseDouble(options.get(name)) : otherwise;
    }

    /** Create the topics (separated by commas), each with this number of queues. */
    private void create() throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(options.get("name-server"));
        admin.start();
        int queues = number("queues", 8);
        for (String name : topic.split(",")) {
            admin.createAndUpdateTopicConfig(options.get("broker"), new TopicConfig(name, queues, queues, 6));
        }
        admin.shutdown();
        System.out.println("{\"messages\": 0}");
    }

    private DefaultMQProducer startProducer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(options.get("group"));
        producer.setNamesrvAddr(options.get("name-server"));
        producer.start();
        return producer;
    }

    /** Fill a topic for the consumers. */
    private void fill() throws Exception {
        DefaultMQProducer producer = startProducer();
        for (int sent = 0; sent < count; sent += BATCH) {
            List<Message> batch = new ArrayList<>(BATCH);
            for (int at = sent; at < Math.min(count, sent + BATCH); at++) {
                batch.add(new Message(topic, body));
            }
            producer.send(batch);
        }
        producer.shutdown();
        System.out.println("{\"messages\": " + count + "}");
    }

    private void send() throws Exception {
        DefaultMQProducer producer = startProducer();
        sendPart(producer, warmup);
        begun = look();
        int failed = sendPart(producer, count);
        ended = look();
        print(count - failed, failed);
        producer.shutdown();
    }

    private int sendPart(DefaultMQProducer producer, int messages) throws Exception {
        AtomicInteger failed = new AtomicInteger();
        if (scenario.equals("single")) {
            for (int at = 0; at < messages; at++) {
                producer.send(new Message(topic, body));
            }
            return 0;
        }
        int inFlight = number("in-flight", 64);
        Semaphore places = new Semaphore(inFlight);
        for (int at = 0; at < messages; at++) {
            places.acquire();
            producer.send(new Message(topic, body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    places.release();
                }

                @Override
                public void onException(Throwable error) {
                    failed.incrementAndGet();
                    places.release();
                }
            });
        }
        places.acquire(inFlight);
        return failed.get();
    }

    private void consume() throws Exception {
        AtomicInteger arrived = new AtomicInteger();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.get("group"));
        consumer.setNamesrvAddr(options.get("name-server"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMax(CONSUME_THREADS);
        consumer.setConsumeThreadMin(CONSUME_THREADS);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                message.getBody();
                int number = arrived.incrementAndGet();
                if (number == warmup) {
                    begun = look();
                } else if (number == count) {
                    ended = look();
                    done.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        int number = count;
        if (!done.await(number("seconds-max", 60), TimeUnit.SECONDS)) {
            number = arrived.get();
            ended = look();
        }
        print(Math.max(0, number - warmup), 0);
        consumer.shutdown();
    }

    /** Wall, own CPU and the broker's CPU, all in seconds. */
    private double[] look() {
        return new double[] {System.nanoTime() / 1e9, SYSTEM.getProcessCpuTime() / 1e9, readBrokerCpu()};
    }

    private double readBrokerCpu() {
        int pid = number("broker-pid", 0);
        if (pid == 0) {
            return 0;
        }
        try {
            String stat = Files.readString(Path.of("/proc/" + pid + "/stat"));
            String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
            return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / 100.0;
        } catch (java.io.IOException error) {
            return 0;
        }
    }

    private void print(int messages, int failed) {
        System.out.printf(
            Locale.ROOT,
            "{\"messages\": %d, \"failed\": %d, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"broker_cpu_seconds\": %.2f}%n",
            messages, failed, ended[0] - begun[0], ended[1] - begun[1], ended[2] - begun[2]);
    }
}
