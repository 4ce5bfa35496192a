package eruca.interop;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;
import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.Option;
import org.apache.commons.cli.Options;
import org.apache.commons.cli.PosixParser;
import org.apache.rocketmq.acl.common.AclUtils;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.logging.InternalLogger;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.srvutil.ServerUtil;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;
import org.apache.rocketmq.tools.command.consumer.StartMonitoringSubCommand;
import org.apache.rocketmq.tools.monitor.DefaultMonitorListener;
import org.apache.rocketmq.tools.monitor.MonitorConfig;
import org.apache.rocketmq.tools.monitor.MonitorService;
import org.slf4j.LoggerFactory;

/**
 * The official mqadmin in one process that stays: a JSON request on the input, JSON rows on the output.
 *
 * <p>{"do": "run", "nameServer": host:port, "arguments": [command, ...]} answers with one row: what the command printed
 * ("out"), what it complained about ("err") and the exception it ended with ("error"); with "tools": path, requests
 * are signed by the account of that tools.yml; with "until": pattern, a command that goes on for ever is stopped when it
 * has printed such a line. startMonitoring does one round. {"do": "describe"} answers with the names and options of all commands.
 * {"do": "build", "kind": name,
 * "nameServer": ..., "address": ..., "broker": ...} makes the content that commands are asked about: the same topics,
 * groups, messages and offsets for every kind, with clients that stay connected. Its row has the ids: "m5" is the
 * unique id of message 5, "o5-" and the kind its offset id there, "reader-" and the kind the client that consumes.
 * {"do": "trace", ...} sends one message more, with a trace; its row has the id too: "traced".
 */
public final class MqAdmin {
    private static final int TIMEOUT_MS = 10_000;
    private static final int QUEUES = 4;
    private static final String ORDERS = "MqOrders";

    private final PrintStream out;
    private final Map<String, String> ids = new ConcurrentHashMap<>();
    private int rows;

    private MqAdmin(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        // Read by classes of the client when they are loaded: shorter than a user's.
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        ((Logger) LoggerFactory.getLogger(Logger.ROOT_LOGGER_NAME)).setLevel(Level.OFF);
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        new MqAdmin(out).serve(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        // Clients leave threads behind that nobody waits for.
        Runtime.getRuntime().halt(0);
    }

    private void serve(BufferedReader input) throws Exception {
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Map<String, Object> last = new LinkedHashMap<>();
            rows = 0;
            try {
                JSONObject request = JSON.parseObject(line);
                switch (request.getString("do")) {
                    case "describe": describe(); break;
                    case "run": run(request); break;
                    case "build": build(request); break;
                    case "trace": trace(request); break;
                    default: throw new IllegalArgumentException("no such action: " + request);
                }
                last.put("done", rows);
            } catch (Exception error) {
                error.printStackTrace();
                last.put("error", String.valueOf(error));
            }
            write(last);
        }
    }

    private void row(Object value) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("row", value);
        write(line);
        rows++;
    }

    private void write(Object line) {
        out.println(JSON.toJSONString(line, SerializerFeature.WriteMapNullValue));
        out.flush();
    }

    // --- commands -----------------------------------------------------------------------------------------------

    /** All commands of mqadmin, new each time: some keep what they were told last. */
    private static final class Commands extends MQAdminStartup {
        static SubCommand find(String name) {
            subCommandList.clear();
            initCommand();
            return subCommandList.stream().filter(known -> name.equalsIgnoreCase(known.commandName())
                || name.equalsIgnoreCase(known.commandAlias())).findFirst().orElseThrow();
        }

        static List<SubCommand> all() {
            return subCommandList;
        }
    }

    /** One row for each command: its names, what its help says, and its options. */
    private void describe() {
        Commands.find("topicList");
        for (SubCommand command : Commands.all()) {
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("name", command.commandName());
            told.put("alias", command.commandAlias());
            told.put("about", command.commandDesc());
            Options options = command.buildCommandlineOptions(ServerUtil.buildCommandlineOptions(new Options()));
            List<Map<String, Object>> flags = new ArrayList<>();
            for (Object each : options.getOptions()) {
                Option option = (Option) each;
                Map<String, Object> flag = new LinkedHashMap<>();
                flag.put("letter", option.getOpt());
                flag.put("long", option.getLongOpt());
                flag.put("value", option.hasArg());
                flag.put("required", option.isRequired());
                flag.put("oneOf", options.getOptionGroup(option) != null);
                flag.put("about", option.getDescription());
                flags.add(flag);
            }
            told.put("flags", flags);
            row(told);
        }
    }

    private void run(JSONObject request) throws Exception {
        String[] arguments = request.getJSONArray("arguments").toArray(new String[0]);
        System.setProperty(MixAll.NAMESRV_ADDR_PROPERTY, request.getString("nameServer"));
        SubCommand command = Commands.find(arguments[0]);
        String[] rest = Arrays.copyOfRange(arguments, 1, arguments.length);
        Options options = ServerUtil.buildCommandlineOptions(new Options());
        CommandLine line = ServerUtil.parseCmdLine(
            "mqadmin", rest, command.buildCommandlineOptions(options), new PosixParser());
        PrintStream realOut = System.out;
        PrintStream realErr = System.err;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            System.setOut(new PrintStream(said, true, "UTF-8"));
            System.setErr(new PrintStream(complained, true, "UTF-8"));
            String tools = request.getString("tools");
            RPCHook hook = tools == null ? null : AclUtils.getAclRPCHook(tools);
            if (command instanceof StartMonitoringSubCommand) {
                monitor();
            } else if (request.getString("until") != null) {
                executeUntil(request.getString("until"), said, () -> command.execute(line, options, hook));
            } else {
                command.execute(line, options, hook);
            }
        } catch (Exception error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            answer.put("error", String.valueOf(cause).split("\n")[0]);
        } finally {
            System.setOut(realOut);
            System.setErr(realErr);
        }
        answer.put("out", said.toString("UTF-8"));
        answer.put("err", complained.toString("UTF-8"));
        row(answer);
    }

    private interface Work {
        void run() throws Exception;
    }

    /** Run a command that goes on for ever, and interrupt it once it has printed a line like this. */
    private static void executeUntil(String pattern, ByteArrayOutputStream said, Work work) throws Exception {
        Pattern wanted = Pattern.compile(pattern, Pattern.MULTILINE);
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception interrupted) {
                // It was waiting for its next round.
            }
        });
        thread.start();
        Scene.await(pattern, () -> wanted.matcher(said.toString(StandardCharsets.UTF_8)).find());
        thread.interrupt();
        thread.join();
    }

    /** One round of the monitor, with what it would write to the log printed. */
    private static void monitor() throws Exception {
        InternalLogger printing = (InternalLogger) Proxy.newProxyInstance(
            MqAdmin.class.getClassLoader(), new Class<?>[] {InternalLogger.class}, (proxy, method, arguments) -> {
                if (method.getName().equals("info")) {
                    System.out.println(arguments[0]);
                }
                return null;
            });
        DefaultMonitorListener listener = new DefaultMonitorListener();
        Field log = DefaultMonitorListener.class.getDeclaredField("log");
        log.setAccessible(true);
        log.set(listener, printing);
        MonitorService service = new MonitorService(new MonitorConfig(), listener, null);
        service.start();
        try {
            service.doMonitorWork();
        } finally {
            service.shutdown();
        }
    }

    // --- content ------------------------------------------------------------------------------------------------

    private void build(JSONObject request) throws Exception {
        String kind = request.getString("kind");
        String address = request.getString("address");
        String broker = request.getString("broker");
        String names = request.getString("nameServer");
        DefaultMQAdminExt admin = prepare(new DefaultMQAdminExt(TIMEOUT_MS), names, "admin-" + kind);
        admin.start();
        admin.createAndUpdateTopicConfig(address, new TopicConfig(ORDERS, QUEUES, QUEUES, 6));
        admin.createAndUpdateTopicConfig(address, new TopicConfig("MqEmpty", 3, 2, 6));
        for (String tool : new String[] {"ByJava", "ByOurs"}) {
            admin.createAndUpdateTopicConfig(address, new TopicConfig("MqCounted" + tool, 1, 1, 6));
            admin.updateConsumeOffset(address, "MqCounters" + tool, new MessageQueue("MqCounted" + tool, broker, 0), 0);
        }
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName("MqConfigured");
        group.setRetryMaxTimes(3);
        group.setConsumeBroadcastEnable(false);
        admin.createAndUpdateSubscriptionGroupConfig(address, group);
        Scene.await("the route of " + ORDERS, () -> {
            try {
                return admin.examineTopicRouteInfo(ORDERS).getQueueDatas().size() == 1;
            } catch (MQClientException error) {
                return false;
            }
        });

        DefaultMQProducer producer = prepare(new DefaultMQProducer("MqSenders"), names, "senders-" + kind);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.start();
        send(admin, producer, broker, kind, 0, 12);
        DefaultMQPushConsumer gone = consume("MqGone", names, "gone-" + kind);
        awaitNothingLeft(admin, gone);
        gone.shutdown();
        send(admin, producer, broker, kind, 12, 17);
        DefaultMQPushConsumer readers = consume("MqReaders", names, "readers-" + kind);
        awaitNothingLeft(admin, readers);
        ids.put("reader-" + kind, readers.buildMQClientId());
        Scene.await("the producer", () -> {
            try {
                return admin.examineProducerConnectionInfo("MqSenders", ORDERS).getConnectionSet().size() == 1;
            } catch (MQBrokerException error) {
                return false;
            }
        });
        row(ids);
    }

    /** One message whose producer traces it. Traces have different lengths, and so move what is stored after them. */
    private void trace(JSONObject request) throws Exception {
        String kind = request.getString("kind");
        String names = request.getString("nameServer");
        DefaultMQAdminExt admin = prepare(new DefaultMQAdminExt(TIMEOUT_MS), names, "trace-admin-" + kind);
        admin.start();
        DefaultMQProducer producer = prepare(
            new DefaultMQProducer("MqTracers", null, true, null), names, "tracers-" + kind);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.start();
        Message message = new Message("MqEmpty", "TagA", "key", "traced".getBytes(StandardCharsets.UTF_8));
        String id = ids.computeIfAbsent("traced", label -> MessageClientIDSetter.createUniqID());
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, id);
        producer.send(message);
        Scene.await("the trace", () -> {
            try {
                long now = System.currentTimeMillis();
                return !admin.queryMessage("RMQ_SYS_TRACE_TOPIC", id, 1, 0, now).getMessageList().isEmpty();
            } catch (MQClientException nothingYet) {
                return false;
            }
        });
        producer.shutdown();
        admin.shutdown();
        row(ids);
    }

    private static <T extends ClientConfig> T prepare(T client, String names, String instance) {
        client.setNamesrvAddr(names);
        client.setInstanceName(instance);
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        client.setPersistConsumerOffsetInterval(500);
        return client;
    }

    /** Messages from..to, to the queues in turn; each has the same unique id wherever it is sent. */
    private void send(
        DefaultMQAdminExt admin, DefaultMQProducer producer, String broker, String kind, int from, int to)
        throws Exception {
        SendResult last = null;
        for (int number = from; number < to; number++) {
            Message message = new Message(ORDERS, tag(number), "key" + number / 2,
                ("body " + number).getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("number", String.valueOf(number));
            String id = ids.computeIfAbsent("m" + number, label -> MessageClientIDSetter.createUniqID());
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, id);
            last = producer.send(message, new MessageQueue(ORDERS, broker, number % QUEUES));
            ids.put("o" + number + "-" + kind, last.getOffsetMsgId());
        }
        SendResult sent = last;
        Scene.await("what was sent", () -> admin.maxOffset(sent.getMessageQueue()) > sent.getQueueOffset());
    }

    /** Nobody subscribes to TagC. It is never the last of a queue: that is passed over only after a long pull. */
    private static String tag(int number) {
        int round = number / QUEUES;
        return round == 1 ? "TagC" : (round + number) % 2 == 0 ? "TagA" : "TagB";
    }

    private static DefaultMQPushConsumer consume(String group, String names, String instance) throws Exception {
        DefaultMQPushConsumer consumer = prepare(new DefaultMQPushConsumer(group), names, instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(ORDERS, "TagA || TagB");
        consumer.registerMessageListener(Scene.into(new Inbox()));
        consumer.start();
        return consumer;
    }

    private static void awaitNothingLeft(DefaultMQAdminExt admin, DefaultMQPushConsumer consumer) throws Exception {
        Scene.await("the offsets of " + consumer.getConsumerGroup(), () -> {
            // By itself it would begin after ten seconds.
            consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            try {
                var stats = admin.examineConsumeStats(consumer.getConsumerGroup());
                return stats.getOffsetTable().size() >= QUEUES && stats.computeTotalDiff() == 0;
            } catch (MQClientException | MQBrokerException error) {
                return false;
            }
        });
    }
}
