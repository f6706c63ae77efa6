package judge;

import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Request-reply, both ends: a consumer that answers each message, and a producer that waits for answers. */
final class Requesting {
    private Requesting() {
    }

    /**
     * Starts a consumer that answers every message with "re: " and its body, repeated as often as "repeat" says; with
     * "errorType" each answer has that property.
     */
    static Object start(JsonObject request) throws Exception {
        DefaultMQPushConsumer consumer = Pushing.open(request);
        // Of one instance with the consumer, a 5.x producer keeps that from its first rebalance.
        JsonObject answering = request.deepCopy();
        answering.addProperty("instance", request.get("name").getAsString() + "-answers");
        DefaultMQProducer sender = Producing.open(answering);
        int repeat = (int) Named.number(request, "repeat", 1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                for (MessageExt message : messages) {
                    String text = new String(message.getBody(), StandardCharsets.UTF_8);
                    String answer = String.join("", java.util.Collections.nCopies(repeat, "re: " + text));
                    Message reply = MessageUtil.createReplyMessage(message, answer.getBytes(StandardCharsets.UTF_8));
                    if (request.has("errorType")) {
                        reply.putUserProperty("errorType", request.get("errorType").getAsString());
                    }
                    sender.send(reply, 15_000);
                }
            } catch (Exception failure) {
                failure.printStackTrace();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Named.add(request.get("name").getAsString(), consumer, () -> {
            consumer.shutdown();
            sender.shutdown();
        });
        return consumer.buildMQClientId();
    }

    /** Sends a message and waits for its answer; with "callback" by the form that is called back. */
    static Object request(JsonObject request) throws Exception {
        DefaultMQProducer producer = Named.get(request, DefaultMQProducer.class);
        Message message = Messages.read(request.getAsJsonObject("message"));
        long timeout = Named.number(request, "timeoutMs", 10_000);
        Message answer = request.has("callback") ? calledBack(producer, message, timeout)
            : producer.request(message, timeout);
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("topic", answer.getTopic());
        all.put("body", Base64.getEncoder().encodeToString(answer.getBody()));
        all.put("asked", new TreeMap<>(message.getProperties()));
        all.put("properties", new TreeMap<>(answer.getProperties()));
        return all;
    }

    private static Message calledBack(DefaultMQProducer producer, Message message, long timeout) throws Exception {
        CompletableFuture<Message> answered = new CompletableFuture<>();
        producer.request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message answer) {
                if (answer != null) {  // the send alone calls back too, without a message
                    answered.complete(answer);
                }
            }

            @Override
            public void onException(Throwable failure) {
                answered.completeExceptionally(failure);
            }
        }, timeout);
        return answered.get(timeout, TimeUnit.MILLISECONDS);
    }
}
