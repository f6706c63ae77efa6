package judge;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultMQPullConsumer: pulls by queue and offset, and the questions about offsets. */
final class Pulling {
    private Pulling() {
    }

    static Object start(JsonObject request) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(request.get("group").getAsString());
        consumer.setNamesrvAddr(request.get("namesrv").getAsString());
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(Named.text(request, "instance", request.get("name").getAsString()));
        consumer.setVipChannelEnabled(Named.flag(request, "vip", false));
        consumer.start();
        Named.add(request.get("name").getAsString(), consumer, consumer::shutdown);
        return consumer.buildMQClientId();
    }

    static Object queues(JsonObject request) throws Exception {
        DefaultMQPullConsumer consumer = Named.get(request, DefaultMQPullConsumer.class);
        List<Object> all = new ArrayList<>();
        for (MessageQueue queue : new TreeSet<>(
            consumer.fetchSubscribeMessageQueues(request.get("topic").getAsString()))) {
            all.add(Messages.describe(queue));
        }
        return all;
    }

    static Object pull(JsonObject request) throws Exception {
        DefaultMQPullConsumer consumer = Named.get(request, DefaultMQPullConsumer.class);
        MessageQueue queue = Messages.queue(request.getAsJsonObject("queue"));
        String expression = Named.text(request, "expression", "*");
        long from = request.get("offset").getAsLong();
        int most = (int) Named.number(request, "max", 32);
        PullResult result;
        if (Named.flag(request, "sql", false)) {
            result = pullBySql(consumer, queue, MessageSelector.bySql(expression), from, most);
        } else if (Named.flag(request, "wait", false)) {
            result = consumer.pullBlockIfNotFound(queue, expression, from, most);
        } else {
            result = consumer.pull(queue, expression, from, most);
        }
        List<Object> messages = new ArrayList<>();
        if (result.getMsgFoundList() != null) {
            for (MessageExt message : result.getMsgFoundList()) {
                messages.add(Messages.describe(message));
            }
        }
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("status", result.getPullStatus().name());
        all.put("nextBeginOffset", result.getNextBeginOffset());
        all.put("minOffset", result.getMinOffset());
        all.put("maxOffset", result.getMaxOffset());
        all.put("messages", messages);
        return all;
    }

    /** A pull consumer sends no SQL to a broker whose version it does not know, and it learns that by a heartbeat only. */
    private static PullResult pullBySql(
        DefaultMQPullConsumer consumer, MessageQueue queue, MessageSelector selector, long from, int most)
        throws Exception {
        consumer.pull(queue, "*", 0, 1);
        for (int tries = 1; ; tries++) {
            consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
                .sendHeartbeatToAllBrokerWithLock();
            try {
                return consumer.pull(queue, selector, from, most);
            } catch (MQClientException unknown) {
                if (tries == 50 || !unknown.getMessage().contains("does not upgrade")) {
                    throw unknown;
                }
                Thread.sleep(100);
            }
        }
    }

    static Object offset(JsonObject request) throws Exception {
        DefaultMQPullConsumer consumer = Named.get(request, DefaultMQPullConsumer.class);
        MessageQueue queue = Messages.queue(request.getAsJsonObject("queue"));
        switch (request.get("which").getAsString()) {
            case "min":
                return consumer.minOffset(queue);
            case "max":
                return consumer.maxOffset(queue);
            case "time":
                return consumer.searchOffset(queue, request.get("timestamp").getAsLong());
            case "committed":
                return consumer.fetchConsumeOffset(queue, true);
            default:
                throw new IllegalArgumentException("which: min, max, time or committed");
        }
    }

    static Object commit(JsonObject request) throws Exception {
        DefaultMQPullConsumer consumer = Named.get(request, DefaultMQPullConsumer.class);
        MessageQueue queue = Messages.queue(request.getAsJsonObject("queue"));
        consumer.getDefaultMQPullConsumerImpl().updateConsumeOffsetToBroker(
            queue, request.get("offset").getAsLong(), false);
        return true;
    }
}
