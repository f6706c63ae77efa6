package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultMQPushConsumer; what its listener got is kept until asked for. */
final class Pushing {
    private final DefaultMQPushConsumer consumer;
    private final List<Map<String, Object>> inbox = new ArrayList<>();
    private final String name;
    private final Path book;
    private final long workMs;
    private int refusals;

    private Pushing(DefaultMQPushConsumer consumer, JsonObject request) {
        this.consumer = consumer;
        name = request.get("name").getAsString();
        book = request.has("book") ? Path.of(request.get("book").getAsString()) : null;
        workMs = Named.number(request, "workMs", 0);
        refusals = (int) Named.number(request, "refuse", 0);
    }

    static Object start(JsonObject request) throws Exception {
        DefaultMQPushConsumer consumer = open(request);
        Pushing pushing = new Pushing(consumer, request);
        if (Named.flag(request, "orderly", false)) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                pushing.work(messages) && pushing.take(messages) ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                pushing.take(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        Named.add(request.get("name").getAsString(), pushing, consumer::shutdown);
        return consumer.buildMQClientId();
    }

    static DefaultMQPushConsumer open(JsonObject request) throws Exception {
        String traces = Named.text(request, "traces", null);
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(request.get("group").getAsString(), Named.signer(request),
                new AllocateMessageQueueAveragely(), traces != null, traces);
        consumer.setNamesrvAddr(request.get("namesrv").getAsString());
        if (request.has("namespace")) {
            consumer.setNamespace(request.get("namespace").getAsString());
        }
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(Named.text(request, "instance", request.get("name").getAsString()));
        consumer.setVipChannelEnabled(Named.flag(request, "vip", false));
        consumer.setConsumeFromWhere(
            ConsumeFromWhere.valueOf(Named.text(request, "from", "CONSUME_FROM_FIRST_OFFSET")));
        if (request.has("fromTimestamp")) {
            consumer.setConsumeTimestamp(request.get("fromTimestamp").getAsString());
        }
        setModel(consumer, Named.text(request, "model", "CLUSTERING"));
        consumer.setConsumeThreadMin((int) Named.number(request, "threads", 2));
        consumer.setConsumeThreadMax((int) Named.number(request, "threads", 2));
        consumer.setPullBatchSize((int) Named.number(request, "pullBatch", 32));
        consumer.setConsumeMessageBatchMaxSize((int) Named.number(request, "consumeBatch", 1));
        consumer.setMaxReconsumeTimes((int) Named.number(request, "maxReconsumeTimes", -1));
        consumer.setPersistConsumerOffsetInterval((int) Named.number(request, "persistMs", 5000));
        for (Map.Entry<String, JsonElement> topic : request.getAsJsonObject("topics").entrySet()) {
            if (Named.flag(request, "sql", false)) {
                consumer.subscribe(topic.getKey(), MessageSelector.bySql(topic.getValue().getAsString()));
            } else {
                consumer.subscribe(topic.getKey(), topic.getValue().getAsString());
            }
        }
        return consumer;
    }

    /** The enum MessageModel lies in another package in 5.x, so it is found by name. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void setModel(Object consumer, String model) throws Exception {
        for (java.lang.reflect.Method method : consumer.getClass().getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, Enum.valueOf((Class<Enum>) method.getParameterTypes()[0], model));
                return;
            }
        }
        throw new IllegalStateException("no setMessageModel");
    }

    /** Notes in the book, which outlives a kill of this process, when each message was begun and ended. */
    private boolean work(List<MessageExt> messages) {
        if (book == null) {
            return true;
        }
        try {
            for (MessageExt message : messages) {
                note("begin", message);
                Thread.sleep(workMs);
                note("end", message);
            }
            return true;
        } catch (IOException | InterruptedException e) {
            return false;
        }
    }

    private void note(String kind, MessageExt message) throws IOException {
        String line = String.format(Locale.ROOT, "%.6f %s %s %d %d %s%n", System.nanoTime() / 1e9, kind, name,
            message.getQueueId(), message.getQueueOffset(), new String(message.getBody(), StandardCharsets.UTF_8));
        Files.writeString(book, line, StandardOpenOption.APPEND);
    }

    private synchronized boolean take(List<MessageExt> messages) {
        if (refusals > 0) {
            refusals--;
            return false;
        }
        for (MessageExt message : messages) {
            inbox.add(Messages.describe(message));
        }
        notifyAll();
        return true;
    }

    /** All messages since the last question, as soon as there are at least so many; fewer when the time is over. */
    static Object received(JsonObject request) throws Exception {
        Pushing pushing = Named.get(request, Pushing.class);
        return pushing.drain((int) Named.number(request, "atLeast", 0), Named.number(request, "timeoutMs", 0));
    }

    /** The queues that the member holds, as soon as there are at least so many. */
    static Object assigned(JsonObject request) throws Exception {
        Pushing pushing = Named.get(request, Pushing.class);
        int atLeast = (int) Named.number(request, "atLeast", 0);
        long deadline = System.nanoTime() + Named.number(request, "timeoutMs", 0) * 1_000_000;
        TreeSet<MessageQueue> held = pushing.held();
        while (held.size() < atLeast && System.nanoTime() < deadline) {
            Thread.sleep(20);
            held = pushing.held();
        }
        List<Object> all = new ArrayList<>();
        for (MessageQueue queue : held) {
            all.add(Messages.describe(queue));
        }
        return all;
    }

    /** The offsets it would commit, by queue, as soon as their sum is at least so high. */
    static Object consumed(JsonObject request) throws Exception {
        Pushing pushing = Named.get(request, Pushing.class);
        long atLeast = Named.number(request, "atLeast", 0);
        long deadline = System.nanoTime() + Named.number(request, "timeoutMs", 0) * 1_000_000;
        while (true) {
            Map<String, Object> offsets = new TreeMap<>();
            long sum = 0;
            for (MessageQueue queue : pushing.held()) {
                long offset = pushing.consumer.getDefaultMQPushConsumerImpl().getOffsetStore()
                    .readOffset(queue, ReadOffsetType.READ_FROM_MEMORY);
                offsets.put(queue.getTopic() + "@" + queue.getBrokerName() + "@" + queue.getQueueId(), offset);
                sum += Math.max(0, offset);
            }
            if (sum >= atLeast || System.nanoTime() >= deadline) {
                return offsets;
            }
            Thread.sleep(20);
        }
    }

    private TreeSet<MessageQueue> held() {
        TreeSet<MessageQueue> held = new TreeSet<>(
            consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet());
        held.removeIf(queue -> queue.getTopic().startsWith("%RETRY%"));
        return held;
    }

    private synchronized Object drain(int atLeast, long timeoutMs) throws Exception {
        long deadline = System.nanoTime() + timeoutMs * 1_000_000;
        while (inbox.size() < atLeast) {
            long left = (deadline - System.nanoTime()) / 1_000_000;
            if (left <= 0) {
                break;
            }
            wait(left);
        }
        List<Object> all = new ArrayList<>(inbox);
        inbox.clear();
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("messages", all);
        answer.put("clientId", consumer.buildMQClientId());
        return answer;
    }
}
