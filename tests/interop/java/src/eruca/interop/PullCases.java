package eruca.interop;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingTimeoutException;

/** The consumer that is told what to pull. */
final class PullCases {
    private static Map<String, Object> describe(PullResult result) {
        return Scene.row(
            "status", result.getPullStatus(), "next", result.getNextBeginOffset(),
            "min", result.getMinOffset(), "max", result.getMaxOffset(),
            "bodies", result.getMsgFoundList() == null ? null : Inbox.bodies(result.getMsgFoundList()));
    }

    /** What an asynchronous pull is told. */
    private static final class Told extends CompletableFuture<PullResult> implements PullCallback {
        @Override
        public void onSuccess(PullResult result) {
            complete(result);
        }

        @Override
        public void onException(Throwable error) {
            completeExceptionally(error);
        }

        PullResult await() throws Exception {
            return get(Scene.DEADLINE_MS, TimeUnit.MILLISECONDS);
        }
    }

    public void pull(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m0", "m1", "m2");
        scene.fact("from the first", describe(scene.puller().pull(queue, "*", 0, 32)));
        scene.fact("from the second, one", describe(scene.puller().pull(queue, "*", 1, 1)));
    }

    public void pullAsync(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m0", "m1");
        Told told = new Told();
        scene.puller().pull(queue, "*", 0, 32, told);
        scene.fact("answer", describe(told.await()));
    }

    public void pullFromAnEmptyQueue(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(2), 0);
        scene.fact("at 0", describe(scene.puller().pull(queue, "*", 0, 32)));
        scene.fact("at 5", describe(scene.puller().pull(queue, "*", 5, 32)));
    }

    public void pullAtTheEndAndBeyond(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m0", "m1", "m2");
        scene.fact("at the end", describe(scene.puller().pull(queue, "*", 3, 32)));
        scene.fact("one beyond", describe(scene.puller().pull(queue, "*", 4, 32)));
        scene.fact("far beyond", describe(scene.puller().pull(queue, "*", 1_000_000, 32)));
    }

    public void pullBringsNoMoreThanAllowed(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.sendMany(queue.getTopic(), 1, "m", 40);
        PullResult result = scene.puller().pull(queue, "*", 0, 100);
        scene.fact("messages", result.getMsgFoundList().size());
        scene.fact("next", result.getNextBeginOffset());
    }

    public void pullWithTags(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        for (String tag : List.of("A", "B", "A", "C")) {
            scene.send(queue, Scene.message(queue.getTopic(), tag, tag.toLowerCase()));
        }
        scene.fact("A", describe(scene.puller().pull(queue, "A", 0, 32)));
        scene.fact("A || C", describe(scene.puller().pull(queue, "A || C", 0, 32)));
        scene.fact("none", describe(scene.puller().pull(queue, "Z", 0, 32)));
    }

    /** A pull in a thread of its own that the broker holds. It may be late on a busy machine, then it is not held. */
    private static FutureTask<PullResult> hold(Scene scene, MessageQueue queue, String tags, long offset)
        throws Exception {
        DefaultMQPullConsumer puller = scene.puller();
        puller.minOffset(queue);
        FutureTask<PullResult> held = new FutureTask<>(() -> puller.pullBlockIfNotFound(queue, tags, offset, 32));
        new Thread(held).start();
        Scene.letPass(300);
        return held;
    }

    public void heldPullWakesOnArrival(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "warm");
        FutureTask<PullResult> held = hold(scene, queue, "*", 1);
        scene.fact("held", !held.isDone());
        long before = System.nanoTime();
        scene.send(queue, "m");
        PullResult result = held.get(Scene.DEADLINE_MS, TimeUnit.MILLISECONDS);
        scene.fact("at once", System.nanoTime() - before < 3_000_000_000L);
        scene.fact("answer", describe(result));
    }

    public void heldPullWakesOnlyForItsTag(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "warm");
        Scene.await("a pull that waits through the other tag", () -> {
            long offset = scene.admin.maxOffset(queue);
            FutureTask<PullResult> held = hold(scene, queue, "A", offset);
            scene.send(queue, Scene.message(queue.getTopic(), "B", "b"));
            Scene.letPass(200);
            boolean waits = !held.isDone();
            scene.send(queue, Scene.message(queue.getTopic(), "A", "a"));
            PullResult result = held.get(Scene.DEADLINE_MS, TimeUnit.MILLISECONDS);
            if (waits) {
                scene.fact("status", result.getPullStatus());
                scene.fact("came", Inbox.bodies(result.getMsgFoundList()));
                scene.fact("went on by", result.getNextBeginOffset() - offset);
            }
            return waits;
        });
    }

    public void heldPullEndsInTime(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "warm");
        DefaultMQPullConsumer puller = scene.prepare(new DefaultMQPullConsumer(scene.name("pullers")));
        puller.setBrokerSuspendMaxTimeMillis(1000);
        puller.start();
        scene.atEnd(puller::shutdown);
        long before = System.currentTimeMillis();
        PullResult result = puller.pullBlockIfNotFound(queue, "*", 1, 32);
        long took = System.currentTimeMillis() - before;
        scene.fact("answer", describe(result));
        scene.fact("not before its time", took >= 1000);
        // Java looks every five seconds.
        scene.fact("soon after", took < 8000);
    }

    public void clientStopsWaitingForAHeldPull(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "warm");
        DefaultMQPullConsumer puller = scene.prepare(new DefaultMQPullConsumer(scene.name("pullers")));
        puller.setConsumerTimeoutMillisWhenSuspend(500);
        puller.setBrokerSuspendMaxTimeMillis(400);
        puller.start();
        // It refuses to start like this.
        puller.setBrokerSuspendMaxTimeMillis(20_000);
        scene.atEnd(puller::shutdown);
        boolean timedOut = false;
        try {
            puller.pullBlockIfNotFound(queue, "*", 1, 32);
        } catch (RemotingTimeoutException error) {
            timedOut = true;
        }
        scene.fact("timed out", timedOut);
        scene.send(queue, "m");
        // The answer to the first one comes now or never; the connection is as good as before.
        scene.fact("goes on", describe(puller.pull(queue, "*", 1, 32)));
    }

    public void queuesOfATopic(Scene scene) throws Exception {
        String topic = scene.topic(3);
        Set<MessageQueue> queues = scene.puller().fetchSubscribeMessageQueues(topic);
        scene.fact("to read", queues.stream().map(MessageQueue::getQueueId).collect(Collectors.toCollection(TreeSet::new)));
        scene.fact("to write", scene.producer().fetchPublishMessageQueues(topic).stream()
            .map(MessageQueue::getQueueId).collect(Collectors.toCollection(TreeSet::new)));
        scene.fact("unknown", scene.refusal(() -> scene.puller().fetchSubscribeMessageQueues(scene.name("unknown"))));
    }

    public void boundsOfAQueue(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        DefaultMQPullConsumer puller = scene.puller();
        scene.fact("empty", List.of(puller.minOffset(queue), puller.maxOffset(queue)));
        scene.fact("earliest when empty", puller.earliestMsgStoreTime(queue));
        scene.send(queue, "m0", "m1", "m2");
        scene.fact("filled", List.of(puller.minOffset(queue), puller.maxOffset(queue)));
        scene.fact("earliest is the first's",
            puller.earliestMsgStoreTime(queue) == scene.read(queue, 3).get(0).getStoreTimestamp());
    }

    public void offsetByTime(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        DefaultMQPullConsumer puller = scene.puller();
        scene.fact("empty", puller.searchOffset(queue, System.currentTimeMillis()));
        for (int number = 0; number < 3; number++) {
            scene.send(queue, "m" + number);
            Scene.letPass(20);
        }
        List<MessageExt> stored = scene.read(queue, 3);
        scene.fact("before all", puller.searchOffset(queue, stored.get(0).getStoreTimestamp() - 1000));
        scene.fact("at each", stored.stream().map(message -> {
            try {
                return puller.searchOffset(queue, message.getStoreTimestamp());
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }).collect(Collectors.toList()));
        scene.fact("between", puller.searchOffset(queue, stored.get(1).getStoreTimestamp() + 1));
        scene.fact("after all", puller.searchOffset(queue, System.currentTimeMillis() + 1000));
    }

    public void pullConsumerKeepsOffsets(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m0", "m1", "m2");
        DefaultMQPullConsumer puller = scene.puller();
        scene.fact("new group", puller.fetchConsumeOffset(queue, true));
        puller.updateConsumeOffset(queue, 2);
        puller.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        scene.awaitCommitted(scene.name("pullers"), queue, 2);
        scene.fact("kept", puller.fetchConsumeOffset(queue, true));
    }

    public void pullConsumersShareQueues(Scene scene) throws Exception {
        String topic = scene.topic(4);
        String group = scene.name("pullers");
        List<DefaultMQPullConsumer> pullers = new java.util.ArrayList<>();
        for (int number = 0; number < 2; number++) {
            DefaultMQPullConsumer puller = scene.prepare(new DefaultMQPullConsumer(group));
            puller.setRegisterTopics(Set.of(topic));
            puller.start();
            scene.atEnd(puller::shutdown);
            pullers.add(puller);
        }
        DefaultMQPullConsumer one = pullers.get(0);
        DefaultMQPullConsumer two = pullers.get(1);
        Scene.await("two queues each", () -> one.fetchMessageQueuesInBalance(topic).size() == 2
            && two.fetchMessageQueuesInBalance(topic).size() == 2);
        Set<Integer> both = new TreeSet<>();
        one.fetchMessageQueuesInBalance(topic).forEach(queue -> both.add(queue.getQueueId()));
        two.fetchMessageQueuesInBalance(topic).forEach(queue -> both.add(queue.getQueueId()));
        scene.fact("both together", both);
    }
}
