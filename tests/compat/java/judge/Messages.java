package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages as JSON, both ways; bodies are base64. */
final class Messages {
    private Messages() {
    }

    static Message read(JsonObject from) {
        Message message = new Message(from.get("topic").getAsString(),
            Base64.getDecoder().decode(from.get("body").getAsString()));
        if (from.has("tags")) {
            message.setTags(from.get("tags").getAsString());
        }
        if (from.has("keys")) {
            message.setKeys(from.get("keys").getAsString());
        }
        message.setFlag((int) Named.number(from, "flag", 0));
        message.setWaitStoreMsgOK(Named.flag(from, "wait", true));
        if (from.has("delay")) {
            message.setDelayTimeLevel(from.get("delay").getAsInt());
        }
        if (from.has("delayMs")) {
            delayInMillis(message, from.get("delayMs").getAsLong());
        }
        if (from.has("properties")) {
            for (Map.Entry<String, JsonElement> property : from.getAsJsonObject("properties").entrySet()) {
                message.putUserProperty(property.getKey(), property.getValue().getAsString());
            }
        }
        return message;
    }

    /** Clients from 5.0 on have a method for this, found by name; what it does is set a property. */
    private static void delayInMillis(Message message, long delay) {
        try {
            Message.class.getMethod("setDelayTimeMs", long.class).invoke(message, delay);
        } catch (NoSuchMethodException none) {
            message.putUserProperty("TIMER_DELAY_MS", Long.toString(delay));
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException(failure);
        }
    }

    static Map<String, Object> describe(MessageExt message) {
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("topic", message.getTopic());
        all.put("queueId", message.getQueueId());
        all.put("queueOffset", message.getQueueOffset());
        all.put("msgId", message.getMsgId());
        all.put("body", Base64.getEncoder().encodeToString(message.getBody() == null ? new byte[0] : message.getBody()));
        all.put("keys", message.getKeys());
        all.put("tags", message.getTags());
        all.put("flag", message.getFlag());
        all.put("sysFlag", message.getSysFlag());
        all.put("properties", new TreeMap<>(message.getProperties()));
        all.put("bornTimestamp", message.getBornTimestamp());
        all.put("bornHost", host(message.getBornHost()));
        all.put("storeTimestamp", message.getStoreTimestamp());
        all.put("storeHost", host(message.getStoreHost()));
        all.put("reconsumeTimes", message.getReconsumeTimes());
        all.put("commitLogOffset", message.getCommitLogOffset());
        all.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        all.put("storeSize", message.getStoreSize());
        all.put("bodyCRC", message.getBodyCRC());
        return all;
    }

    static MessageQueue queue(JsonObject from) {
        return new MessageQueue(from.get("topic").getAsString(), from.get("brokerName").getAsString(),
            from.get("queueId").getAsInt());
    }

    static Map<String, Object> describe(MessageQueue queue) {
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("topic", queue.getTopic());
        all.put("brokerName", queue.getBrokerName());
        all.put("queueId", queue.getQueueId());
        return all;
    }

    private static String host(SocketAddress address) {
        InetSocketAddress inet = (InetSocketAddress) address;
        return inet.getAddress().getHostAddress() + ":" + inet.getPort();
    }
}
