package eruca.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.message.MessageExt;

/** What consumers were given, in the order they were given it. */
final class Inbox {
    private final List<MessageExt> messages = new ArrayList<>();

    synchronized void add(List<MessageExt> more) {
        messages.addAll(more);
        notifyAll();
    }

    /** Wait until there are this many; return all there are by then. */
    List<MessageExt> await(int count) throws InterruptedException {
        return await(count + " messages", all -> all.size() >= count);
    }

    /** Wait until a body is among them; gives all there are by then. */
    List<MessageExt> await(String body) throws InterruptedException {
        return await("message " + body, all -> bodies(all).contains(body));
    }

    synchronized List<MessageExt> await(String what, Predicate<List<MessageExt>> isSo) throws InterruptedException {
        long deadline = System.currentTimeMillis() + Scene.DEADLINE_MS;
        while (!isSo.test(messages)) {
            long rest = deadline - System.currentTimeMillis();
            if (rest <= 0) {
                throw new IllegalStateException("waited for " + what + ", but got " + bodies(messages));
            }
            wait(rest);
        }
        return all();
    }

    synchronized List<MessageExt> all() {
        return new ArrayList<>(messages);
    }

    /** The bodies as text. */
    static List<String> bodies(List<MessageExt> messages) {
        return messages.stream().map(Inbox::text).collect(Collectors.toList());
    }

    /** The bodies as text, in the order of the alphabet. */
    static List<String> sorted(List<MessageExt> messages) {
        return messages.stream().map(Inbox::text).sorted().collect(Collectors.toList());
    }

    static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
