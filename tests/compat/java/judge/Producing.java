package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultMQProducer: sync, async, one-way and batch sends. */
final class Producing {
    private Producing() {
    }

    static Object start(JsonObject request) throws Exception {
        DefaultMQProducer producer = open(request);
        Named.add(request.get("name").getAsString(), producer, producer::shutdown);
        return producer.buildMQClientId();
    }

    static DefaultMQProducer open(JsonObject request) throws Exception {
        System.setProperty("rocketmq.message.compressType", Named.text(request, "compressType", "ZLIB"));
        String traces = Named.text(request, "traces", null);
        DefaultMQProducer producer =
            new DefaultMQProducer(request.get("group").getAsString(), Named.signer(request), traces != null, traces);
        producer.setNamesrvAddr(request.get("namesrv").getAsString());
        if (request.has("namespace")) {
            producer.setNamespace(request.get("namespace").getAsString());
        }
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName(Named.text(request, "instance", request.get("name").getAsString()));
        producer.setVipChannelEnabled(Named.flag(request, "vip", false));
        producer.setCompressMsgBodyOverHowmuch((int) Named.number(request, "compressOver", 4096));
        producer.setRetryTimesWhenSendFailed((int) Named.number(request, "retries", 2));
        producer.setSendMsgTimeout((int) Named.number(request, "timeoutMs", 5000));
        producer.setPollNameServerInterval((int) Named.number(request, "pollMs", 30_000));
        producer.setDefaultTopicQueueNums((int) Named.number(request, "queues", 4));
        producer.start();
        return producer;
    }

    /** Makes the producer's group known to the brokers at once; by itself it does so every 30 s. */
    static Object heartbeat(JsonObject request) {
        Named.get(request, DefaultMQProducer.class).getDefaultMQProducerImpl().getMqClientFactory()
            .sendHeartbeatToAllBrokerWithLock();
        return true;
    }

    static Object send(JsonObject request) throws Exception {
        DefaultMQProducer producer = Named.get(request, DefaultMQProducer.class);
        List<Message> messages = new ArrayList<>();
        for (JsonElement message : request.getAsJsonArray("messages")) {
            messages.add(Messages.read(message.getAsJsonObject()));
        }
        MessageQueue queue = request.has("queue") ? Messages.queue(request.getAsJsonObject("queue")) : null;
        switch (request.get("how").getAsString()) {
            case "sync":
                return sync(producer, messages, queue);
            case "async":
                return async(producer, messages, queue);
            case "oneway":
                return oneway(producer, messages, queue);
            case "batch":
                return batch(producer, messages, queue);
            default:
                throw new IllegalArgumentException("how: sync, async, oneway or batch");
        }
    }

    private static Object sync(DefaultMQProducer producer, List<Message> messages, MessageQueue queue) {
        List<Object> results = new ArrayList<>();
        for (Message message : messages) {
            try {
                results.add(describe(queue == null ? producer.send(message) : producer.send(message, queue)));
            } catch (Exception failure) {
                results.add(Judge.describe(failure));
            }
        }
        return results;
    }

    private static Object async(DefaultMQProducer producer, List<Message> messages, MessageQueue queue)
        throws Exception {
        Object[] results = new Object[messages.size()];
        CountDownLatch open = new CountDownLatch(messages.size());
        for (int i = 0; i < messages.size(); i++) {
            int index = i;
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results[index] = describe(result);
                    open.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    results[index] = Judge.describe(failure);
                    open.countDown();
                }
            };
            if (queue == null) {
                producer.send(messages.get(i), callback);
            } else {
                producer.send(messages.get(i), queue, callback);
            }
        }
        if (!open.await(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException(open.getCount() + " callbacks did not come within 30 s");
        }
        return results;
    }

    private static Object oneway(DefaultMQProducer producer, List<Message> messages, MessageQueue queue)
        throws Exception {
        for (Message message : messages) {
            if (queue == null) {
                producer.sendOneway(message);
            } else {
                producer.sendOneway(message, queue);
            }
        }
        return new ArrayList<>();
    }

    private static Object batch(DefaultMQProducer producer, List<Message> messages, MessageQueue queue)
        throws Exception {
        List<Object> results = new ArrayList<>();
        results.add(describe(queue == null ? producer.send(messages) : producer.send(messages, queue)));
        return results;
    }

    static Map<String, Object> describe(SendResult result) {
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("status", result.getSendStatus().name());
        all.put("msgId", result.getMsgId());
        all.put("offsetMsgId", result.getOffsetMsgId());
        all.put("queue", Messages.describe(result.getMessageQueue()));
        all.put("queueOffset", result.getQueueOffset());
        all.put("regionId", result.getRegionId());
        return all;
    }
}
