package eruca.interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The consumer that is polled. */
final class LitePullCases {
    /** Poll until there are this many. */
    private static List<MessageExt> poll(DefaultLitePullConsumer consumer, int count) throws Exception {
        List<MessageExt> came = new ArrayList<>();
        Scene.await(count + " messages", () -> came.addAll(consumer.poll(200)) && came.size() >= count);
        return came;
    }

    /** Seek and poll. The client forgets a seek when it interrupts its own pull at a bad moment, and is told again. */
    private static List<MessageExt> pollAfter(Scene.Step seek, DefaultLitePullConsumer consumer, int count)
        throws Exception {
        List<MessageExt> came = new ArrayList<>();
        Scene.await(count + " messages after a seek", () -> {
            came.clear();
            seek.run();
            for (int tries = 0; came.size() < count && tries < 25; tries++) {
                came.addAll(consumer.poll(200));
            }
            return came.size() >= count;
        });
        return came;
    }

    /** Has the queues, and is about to pull from their first messages; seek when those have come. */
    private static DefaultLitePullConsumer assign(Scene scene, MessageQueue... queues) throws Exception {
        DefaultLitePullConsumer consumer = scene.start(scene.litePuller(scene.name("readers")));
        consumer.setAutoCommit(false);
        consumer.assign(List.of(queues));
        return consumer;
    }

    public void litePullSubscribes(Scene scene) throws Exception {
        String topic = scene.topic(2);
        DefaultLitePullConsumer consumer = scene.litePuller(scene.name("readers"));
        consumer.subscribe(topic, "*");
        scene.start(consumer);
        scene.sendMany(topic, 2, "m", 6);
        scene.fact("came", Inbox.sorted(poll(consumer, 6)));
        Scene.await("the offsets", () -> {
            consumer.poll(50);
            return scene.committed(scene.name("readers"), scene.queue(topic, 0)) == 3
                && scene.committed(scene.name("readers"), scene.queue(topic, 1)) == 3;
        });
    }

    public void litePullSubscribesToTags(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        DefaultLitePullConsumer consumer = scene.litePuller(scene.name("readers"));
        consumer.subscribe(queue.getTopic(), "A || B");
        scene.start(consumer);
        for (String tag : List.of("A", "C", "B", "A")) {
            scene.send(queue, Scene.message(queue.getTopic(), tag, tag));
        }
        scene.fact("came", Inbox.bodies(poll(consumer, 3)));
    }

    public void litePullCommits(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m0", "m1", "m2");
        DefaultLitePullConsumer consumer = assign(scene, queue);
        poll(consumer, 3);
        consumer.commit(Set.of(queue), true);
        scene.awaitCommitted(scene.name("readers"), queue, 3);
        scene.fact("committed", consumer.committed(queue));
        consumer.shutdown();
        scene.send(queue, "m3");
        DefaultLitePullConsumer next = assign(scene, queue);
        scene.fact("next", Inbox.bodies(poll(next, 1)));
    }

    public void litePullSeeks(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m0", "m1", "m2", "m3");
        DefaultLitePullConsumer consumer = assign(scene, queue);
        scene.fact("from 0", Inbox.bodies(poll(consumer, 4)));
        scene.fact("from 2", Inbox.bodies(pollAfter(() -> consumer.seek(queue, 2), consumer, 2)));
        scene.fact("from 1", Inbox.bodies(pollAfter(() -> consumer.seek(queue, 1), consumer, 3)));
    }

    public void litePullSeeksToBeginAndEnd(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m0", "m1");
        DefaultLitePullConsumer consumer = assign(scene, queue);
        poll(consumer, 2);
        scene.fact("from the begin", Inbox.bodies(pollAfter(() -> consumer.seekToBegin(queue), consumer, 2)));
        // The pull that was out before the seek may bring it too.
        scene.fact("from the end", new TreeSet<>(Inbox.bodies(pollAfter(() -> {
            consumer.seekToEnd(queue);
            scene.send(queue, "m2");
        }, consumer, 1))));
    }

    public void litePullSeeksOnlyInside(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m0", "m1");
        DefaultLitePullConsumer consumer = assign(scene, queue);
        scene.fact("refusal", String.valueOf(scene.refusal(() -> consumer.seek(queue, 7)).get("remark"))
            .replaceFirst(".*, ", ""));
    }

    public void litePullPausesAndResumes(Scene scene) throws Exception {
        String topic = scene.topic(2);
        MessageQueue one = scene.queue(topic, 0);
        MessageQueue two = scene.queue(topic, 1);
        DefaultLitePullConsumer consumer = assign(scene, one, two);
        List<MessageExt> came = new ArrayList<>();
        consumer.pause(List.of(one));
        // A pull that was out already brings this one at once, and none follows it.
        scene.send(one, "perhaps");
        Scene.letPass(300);
        scene.send(one, "paused");
        scene.send(two, "two");
        Scene.await("the other queue", () -> came.addAll(consumer.poll(100)) && Inbox.bodies(came).contains("two"));
        scene.fact("came while paused", Inbox.bodies(came).contains("paused"));
        consumer.resume(List.of(one));
        Scene.await("the paused queue", () -> {
            came.addAll(consumer.poll(100));
            return Inbox.bodies(came).contains("paused");
        });
        scene.fact("came", Inbox.sorted(came));
    }

    public void litePullFindsOffsetByTime(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        scene.send(queue, "m0");
        Scene.letPass(20);
        scene.send(queue, "m1");
        DefaultLitePullConsumer consumer = assign(scene, queue);
        long offset = consumer.offsetForTimestamp(queue, poll(consumer, 2).get(1).getStoreTimestamp());
        scene.fact("of the second", offset);
        scene.fact("came", Inbox.bodies(pollAfter(() -> consumer.seek(queue, offset), consumer, 1)));
    }

    public void litePullAssignsWithTags(Scene scene) throws Exception {
        MessageQueue queue = scene.queue(scene.topic(1), 0);
        for (String tag : List.of("A", "B", "A")) {
            scene.send(queue, Scene.message(queue.getTopic(), tag, tag));
        }
        DefaultLitePullConsumer consumer = scene.litePuller(scene.name("readers"));
        consumer.setSubExpressionForAssign(queue.getTopic(), "A");
        scene.start(consumer);
        consumer.assign(List.of(queue));
        scene.fact("came", Inbox.bodies(poll(consumer, 2)));
    }

    public void litePullersShareQueues(Scene scene) throws Exception {
        String topic = scene.topic(4);
        List<DefaultLitePullConsumer> consumers = new ArrayList<>();
        for (int number = 0; number < 2; number++) {
            DefaultLitePullConsumer consumer = scene.litePuller(scene.name("readers"));
            consumer.subscribe(topic, "*");
            consumers.add(scene.start(consumer));
        }
        Scene.await("two queues each", () -> consumers.get(0).assignment().size() == 2
            && consumers.get(1).assignment().size() == 2);
        Set<Integer> both = new TreeSet<>();
        for (DefaultLitePullConsumer consumer : consumers) {
            both.addAll(consumer.assignment().stream().map(MessageQueue::getQueueId).collect(Collectors.toSet()));
        }
        scene.fact("both together", both);
        Collection<MessageQueue> queues = consumers.get(0).fetchMessageQueues(topic);
        scene.fact("queues", queues.size());
    }
}
