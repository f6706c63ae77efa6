package judge;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What DefaultMQAdminExt can ask and no command of mqadmin does. */
final class Asking {
    private Asking() {
    }

    /** The offsets in the memory of a group's members (223 to the broker, 221 to each member), by client id. */
    static Object consumeStatus(JsonObject request) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(request.get("namesrv").getAsString());
        admin.setInstanceName(Long.toString(System.nanoTime()));
        admin.start();
        try {
            Map<String, Map<MessageQueue, Long>> found = admin.getConsumeStatus(
                request.get("topic").getAsString(), request.get("group").getAsString(), Named.text(request, "client", ""));
            Map<String, Object> all = new LinkedHashMap<>();
            for (Map.Entry<String, Map<MessageQueue, Long>> member : found.entrySet()) {
                List<Object> offsets = new ArrayList<>();
                for (Map.Entry<MessageQueue, Long> each : member.getValue().entrySet()) {
                    Map<String, Object> one = new LinkedHashMap<>();
                    one.put("queue", Messages.describe(each.getKey()));
                    one.put("offset", each.getValue());
                    offsets.add(one);
                }
                all.put(member.getKey(), offsets);
            }
            return all;
        } finally {
            admin.shutdown();
        }
    }
}
