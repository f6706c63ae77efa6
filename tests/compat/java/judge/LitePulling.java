package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** DefaultLitePullConsumer: subscribed, polled, committed by itself. */
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
        consumer.setPullThreadNums(2);
        for (Map.Entry<String, JsonElement> topic : request.getAsJsonObject("topics").entrySet()) {
            consumer.subscribe(topic.getKey(), topic.getValue().getAsString());
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
}
