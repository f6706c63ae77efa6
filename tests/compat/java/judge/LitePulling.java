package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultLitePullConsumer: subscribed or assigned, polled, committed by itself or by hand. */
final class LitePulling {
    private LitePulling() {
    }

    static Object start(JsonObject request) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(request.get("group").getAsString());
        consumer.setNamesrvAddr(request.get("namesrv").getAsString());
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(Named.text(request, "instance", request.get("name").getAsString()));
        consumer.setVipChannelEnabled(Named.flag(request, "vip", false));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullThreadNums(4);
        consumer.setAutoCommit(Named.flag(request, "auto", true));
        if (request.has("queues")) {
            consumer.assign(queues(request));
        } else {
            for (Map.Entry<String, JsonElement> topic : request.getAsJsonObject("topics").entrySet()) {
                consumer.subscribe(topic.getKey(), topic.getValue().getAsString());
            }
        }
        consumer.start();
        Named.add(request.get("name").getAsString(), consumer, consumer::shutdown);
        return consumer.buildMQClientId();
    }

    static Object poll(JsonObject request) throws Exception {
        DefaultLitePullConsumer consumer = Named.get(request, DefaultLitePullConsumer.class);
        int atLeast = (int) Named.number(request, "atLeast", 1);
        long deadline = System.nanoTime() + Named.number(request, "timeoutMs", 5000) * 1_000_000;
        List<Object> all = new ArrayList<>();
        while (all.size() < atLeast && System.nanoTime() < deadline) {
            for (MessageExt message : consumer.poll(200)) {
                all.add(Messages.describe(message));
            }
        }
        return all;
    }

    /** The queues it has, as soon as there are exactly so many. */
    static Object assignment(JsonObject request) throws Exception {
        DefaultLitePullConsumer consumer = Named.get(request, DefaultLitePullConsumer.class);
        long count = Named.number(request, "count", 0);
        long deadline = System.nanoTime() + Named.number(request, "timeoutMs", 0) * 1_000_000;
        while (consumer.assignment().size() != count && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
        List<Object> all = new ArrayList<>();
        for (MessageQueue queue : new TreeSet<>(consumer.assignment())) {
            all.add(Messages.describe(queue));
        }
        return all;
    }

    static Object assign(JsonObject request) throws Exception {
        Named.get(request, DefaultLitePullConsumer.class).assign(queues(request));
        return null;
    }

    /** To an offset, or to the begin or the end. */
    static Object seek(JsonObject request) throws Exception {
        DefaultLitePullConsumer consumer = Named.get(request, DefaultLitePullConsumer.class);
        MessageQueue queue = Messages.queue(request.getAsJsonObject("queue"));
        switch (request.get("to").getAsString()) {
            case "begin":
                consumer.seekToBegin(queue);
                break;
            case "end":
                consumer.seekToEnd(queue);
                break;
            default:
                consumer.seek(queue, request.get("to").getAsLong());
        }
        return null;
    }

    /** Everything that was polled, stored at the broker. */
    static Object commit(JsonObject request) throws Exception {
        DefaultLitePullConsumer consumer = Named.get(request, DefaultLitePullConsumer.class);
        consumer.commit(new HashSet<>(consumer.assignment()), true);
        return null;
    }

    static Object time(JsonObject request) throws Exception {
        return Named.get(request, DefaultLitePullConsumer.class).offsetForTimestamp(
            Messages.queue(request.getAsJsonObject("queue")), request.get("timestamp").getAsLong());
    }

    private static List<MessageQueue> queues(JsonObject request) {
        List<MessageQueue> all = new ArrayList<>();
        for (JsonElement each : request.getAsJsonArray("queues")) {
            all.add(Messages.queue(each.getAsJsonObject()));
        }
        return all;
    }
}
