package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * TransactionMQProducer. Each message says itself what becomes of it: the user property "local" is the outcome of the
 * local transaction (or THROW), "checks" are the answers to the broker's questions, joined by blanks, the last for ever.
 */
final class Transacting implements TransactionListener {
    private final List<Map<String, Object>> asked = new ArrayList<>();
    private final Map<String, Integer> counts = new HashMap<>();
    private final TransactionMQProducer producer;

    private Transacting(TransactionMQProducer producer) {
        this.producer = producer;
    }

    static Object start(JsonObject request) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(request.get("group").getAsString());
        producer.setNamesrvAddr(request.get("namesrv").getAsString());
        producer.setInstanceName(request.get("name").getAsString());
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(5000);
        Transacting transacting = new Transacting(producer);
        producer.setTransactionListener(transacting);
        producer.start();
        // A heartbeat knows of a broker only once a topic of it is known.
        for (JsonElement topic : request.getAsJsonArray("topics")) {
            producer.fetchPublishMessageQueues(topic.getAsString());
        }
        producer.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
        Named.add(request.get("name").getAsString(), transacting, producer::shutdown);
        return producer.buildMQClientId();
    }

    static Object send(JsonObject request) throws Exception {
        Transacting transacting = Named.get(request, Transacting.class);
        List<Object> results = new ArrayList<>();
        for (JsonElement message : request.getAsJsonArray("messages")) {
            TransactionSendResult result =
                transacting.producer.sendMessageInTransaction(Messages.read(message.getAsJsonObject()), null);
            Map<String, Object> all = Producing.describe(result);
            all.put("transactionId", result.getTransactionId());
            all.put("local", result.getLocalTransactionState().name());
            results.add(all);
        }
        return results;
    }

    /** All questions of brokers so far, as soon as there are at least so many. */
    static Object asked(JsonObject request) throws Exception {
        Transacting transacting = Named.get(request, Transacting.class);
        int atLeast = (int) Named.number(request, "atLeast", 0);
        long deadline = System.nanoTime() + Named.number(request, "timeoutMs", 0) * 1_000_000;
        synchronized (transacting.asked) {
            while (transacting.asked.size() < atLeast && System.nanoTime() < deadline) {
                transacting.asked.wait(20);
            }
            return new ArrayList<>(transacting.asked);
        }
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        String local = message.getUserProperty("local");
        if (local.equals("THROW")) {
            throw new IllegalStateException("as the message says");
        }
        return LocalTransactionState.valueOf(local);
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        Map<String, Object> question = new LinkedHashMap<>(Messages.describe(message));
        question.put("transactionId", message.getTransactionId());
        synchronized (asked) {
            int count = counts.merge(message.getTransactionId(), 1, Integer::sum);
            String[] answers = message.getUserProperty("checks").split(" ");
            String answer = answers[Math.min(count, answers.length) - 1];
            question.put("answer", answer);
            asked.add(question);
            asked.notifyAll();
            return LocalTransactionState.valueOf(answer);
        }
    }
}
