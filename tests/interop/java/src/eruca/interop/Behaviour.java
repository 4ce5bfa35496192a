package eruca.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/**
 * Named cases with the official client, several at a time: a JSON request on the input, one JSON line for each answer.
 *
 * <p>A request is {"id": any text, "case": name, "nameServer": host:port, "broker": name, "address": host:port}. The
 * answer begins with the id, {"id": ..., "facts": {...}} or {"id": ..., "error": text}, and comes when the case is done.
 * The case "list" answers with the names of all. A case is a public method of one of the groups below that takes a
 * {@link Scene}; sendsInOrder is the case sends_in_order. Those marked {@link Alone} change what others see.
 */
public final class Behaviour {
    private static final int CASES_AT_A_TIME = 8;

    private static final Object[] GROUPS = {
        new SendCases(), new BatchCases(), new RefusalCases(), new PushCases(), new RetryCases(), new OrderlyCases(),
        new PullCases(), new LitePullCases(), new TransactionCases(), new ReplyCases(), new QueryCases(),
        new FilterCases(), new TopicCases(), new GroupCases(), new OffsetCases(), new ClusterCases(),
    };

    private final PrintStream out;
    private final Map<String, Runner> cases = new TreeMap<>();
    private final ReadWriteLock turn = new ReentrantReadWriteLock();
    private final ExecutorService workers = Executors.newFixedThreadPool(CASES_AT_A_TIME);

    /** What runs one case. */
    private interface Runner {
        void run(Scene scene) throws Exception;
    }

    private Behaviour(PrintStream out, Object[] groups) {
        this.out = out;
        for (Object group : groups) {
            for (Method method : group.getClass().getDeclaredMethods()) {
                if (Modifier.isPublic(method.getModifiers())) {
                    add(group, method);
                }
            }
        }
    }

    private void add(Object group, Method method) {
        String name = method.getName().replaceAll("([A-Z])", "_$1").toLowerCase();
        boolean alone = method.isAnnotationPresent(Alone.class);
        Runner earlier = cases.put(name, scene -> {
            var lock = alone ? turn.writeLock() : turn.readLock();
            lock.lock();
            try {
                method.invoke(group, scene);
            } catch (InvocationTargetException error) {
                throw error.getCause() instanceof Exception ? (Exception) error.getCause() : error;
            } finally {
                lock.unlock();
            }
        });
        if (earlier != null) {
            throw new IllegalStateException("two cases are called " + name);
        }
    }

    public static void main(String[] arguments) throws Exception {
        run(arguments, GROUPS);
    }

    /** Serves the cases of some groups until the input ends. */
    static void run(String[] arguments, Object... groups) throws Exception {
        // Read by classes of the client when they are loaded. The times are shorter than a user's, not the ways.
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        System.setProperty("rocketmq.client.rebalance.lockInterval", "1000");
        System.setProperty("rocketmq.client.unlockDelayTimeMills", "100");
        if (arguments.length > 0) {
            System.setProperty("rocketmq.serialize.type", arguments[0]);
        }
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        // Libraries may print; the real output is for answers only.
        System.setOut(System.err);
        new Behaviour(out, groups).serve(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        // Clients leave threads behind that nobody waits for.
        Runtime.getRuntime().halt(0);
    }

    private void serve(BufferedReader input) throws Exception {
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JSONObject request = JSON.parseObject(line);
            if (request.getString("case").equals("list")) {
                answer(request, "facts", Map.of("cases", cases.keySet()));
            } else {
                workers.submit(() -> handle(request));
            }
        }
    }

    private void handle(JSONObject request) {
        try (Scene scene = new Scene(request)) {
            Runner runner = cases.get(request.getString("case"));
            if (runner == null) {
                throw new IllegalArgumentException("no such case: " + request.getString("case"));
            }
            runner.run(scene);
            answer(request, "facts", scene.facts());
        } catch (Throwable error) {
            error.printStackTrace();
            answer(request, "error", describe(error));
        }
    }

    private static String describe(Throwable error) {
        StringBuilder text = new StringBuilder(String.valueOf(error));
        for (StackTraceElement element : error.getStackTrace()) {
            if (element.getClassName().startsWith("eruca.")) {
                text.append(" at ").append(element.getFileName()).append(':').append(element.getLineNumber());
            }
        }
        return text.toString();
    }

    private synchronized void answer(JSONObject request, String kind, Object value) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("id", request.getString("id"));
        line.put(kind, value);
        out.println(JSON.toJSONString(
            line, SerializerFeature.WriteMapNullValue, SerializerFeature.DisableCircularReferenceDetect));
        out.flush();
    }
}
