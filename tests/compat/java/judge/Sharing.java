package judge;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MQPullConsumer;
import org.apache.rocketmq.client.consumer.MQPullConsumerScheduleService;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Members of a group that pull by themselves: DefaultMQPullConsumer with a topic and a listener, and the schedule service. */
final class Sharing {
    private final DefaultMQPullConsumer consumer;
    private final String topic;
    private final boolean scheduled;
    private final List<Object> seen = new CopyOnWriteArrayList<>();
    /** The share that the listener was told last; of the schedule service, which has its own listener, nothing. */
    private volatile Set<MessageQueue> told = new TreeSet<>();

    private Sharing(DefaultMQPullConsumer consumer, String topic, boolean scheduled) {
        this.consumer = consumer;
        this.topic = topic;
        this.scheduled = scheduled;
    }

    static Object start(JsonObject request) throws Exception {
        String name = request.get("name").getAsString();
        String group = request.get("group").getAsString();
        boolean scheduled = Named.flag(request, "scheduled", false);
        MQPullConsumerScheduleService service = new MQPullConsumerScheduleService(group);
        DefaultMQPullConsumer consumer = scheduled ? service.getDefaultMQPullConsumer() : new DefaultMQPullConsumer(group);
        Sharing member = new Sharing(consumer, request.get("topic").getAsString(), scheduled);
        consumer.setNamesrvAddr(request.get("namesrv").getAsString());
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(name);
        consumer.setVipChannelEnabled(false);
        if (scheduled) {
            service.registerPullTaskCallback(member.topic, (queue, context) -> {
                member.pull(context.getPullConsumer(), queue);
                context.setPullNextDelayTimeMillis(20);
            });
            service.start();
            Named.add(name, member, service::shutdown);
        } else {
            consumer.registerMessageQueueListener(member.topic, (changed, all, mine) -> member.told = new TreeSet<>(mine));
            consumer.start();
            Named.add(name, member, consumer::shutdown);
        }
        return consumer.buildMQClientId();
    }

    /** Its queues, as soon as there are exactly so many, and those that its listener heard of last. */
    static Object share(JsonObject request) throws Exception {
        Sharing member = Named.get(request, Sharing.class);
        long count = Named.number(request, "count", 0);
        long deadline = System.nanoTime() + Named.number(request, "timeoutMs", 0) * 1_000_000;
        while (member.count() != count && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("queues", describe(member.consumer.fetchMessageQueuesInBalance(member.topic)));
        all.put("told", describe(member.told));
        return all;
    }

    /** How many queues it has; where there is a listener, not before it heard of them. */
    private long count() throws Exception {
        Set<MessageQueue> mine = consumer.fetchMessageQueuesInBalance(topic);
        return scheduled || mine.equals(told) ? mine.size() : -1;
    }

    /** What it pulled since it was asked last, as soon as that is so much. */
    static Object pulled(JsonObject request) throws Exception {
        Sharing member = Named.get(request, Sharing.class);
        long atLeast = Named.number(request, "atLeast", 1);
        long deadline = System.nanoTime() + Named.number(request, "timeoutMs", 0) * 1_000_000;
        while (member.seen.size() < atLeast && System.nanoTime() < deadline) {
            if (member.scheduled) {
                Thread.sleep(20);
            } else {
                for (MessageQueue queue : member.consumer.fetchMessageQueuesInBalance(member.topic)) {
                    member.pull(member.consumer, queue);
                }
            }
        }
        List<Object> all = new ArrayList<>(member.seen);
        member.seen.clear();
        return all;
    }

    /** On from its own offset, which it keeps in memory until the queue or the consumer goes. */
    private void pull(MQPullConsumer from, MessageQueue queue) {
        try {
            PullResult result = from.pull(queue, "*", Math.max(0, from.fetchConsumeOffset(queue, false)), 32);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    seen.add(Messages.describe(message));
                }
            }
            from.updateConsumeOffset(queue, result.getNextBeginOffset());
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static List<Object> describe(Set<MessageQueue> queues) {
        List<Object> all = new ArrayList<>();
        for (MessageQueue queue : new TreeSet<>(queues)) {
            all.add(Messages.describe(queue));
        }
        return all;
    }
}
