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
        DefaultMQAdminExt admin = started(request);
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

    /** What Apache's exporter for Prometheus asks about a topic, a group and the broker "address", as it asks it. */
    static Object exporterFigures(JsonObject request) throws Exception {
        String topic = request.get("topic").getAsString();
        String group = request.get("group").getAsString();
        String address = request.get("address").getAsString();
        DefaultMQAdminExt admin = started(request);
        try {
            Map<String, Object> all = new LinkedHashMap<>();
            all.put("topics", admin.fetchAllTopicList().getTopicList());
            all.put("brokers", admin.examineTopicRouteInfo(topic).getBrokerDatas().size());
            all.put("groups", admin.queryTopicConsumeByWho(topic).getGroupList());
            long messages = 0;
            for (var queue : admin.examineTopicStats(topic).getOffsetTable().values()) {
                messages += queue.getMaxOffset() - queue.getMinOffset();
            }
            all.put("messages", messages);
            Map<String, Object> producers = new LinkedHashMap<>();
            admin.getAllProducerInfo(address).getData().forEach((name, members) -> producers.put(name, members.size()));
            all.put("producers", producers);
            var stats = admin.examineConsumeStats(group, topic);
            long consumed = 0;
            for (var queue : stats.getOffsetTable().values()) {
                consumed += queue.getConsumerOffset();
            }
            all.put("consumed", consumed);
            all.put("behind", stats.computeTotalDiff());
            all.put("members", statuses(admin, group, topic));
            Map<String, Object> counters = new LinkedHashMap<>();
            for (var each : request.getAsJsonObject("counters").entrySet()) {
                var minute = admin.viewBrokerStatsData(address, each.getKey(), each.getValue().getAsString()).getStatsMinute();
                counters.put(each.getKey(), List.of(minute.getSum(), minute.getAvgpt()));
            }
            all.put("counters", counters);
            all.put("runtime", admin.fetchBrokerRuntimeStats(address).getTable());
            return all;
        } finally {
            admin.shutdown();
        }
    }

    /** By client id what a member says of its consumption (307). */
    private static Map<String, Object> statuses(DefaultMQAdminExt admin, String group, String topic) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        for (var member : admin.examineConsumerConnectionInfo(group).getConnectionSet()) {
            var status = admin.getConsumerRunningInfo(group, member.getClientId(), false).getStatusTable().get(topic);
            found.put(member.getClientId(), List.of(status.getConsumeOKTPS(), status.getConsumeRT(), status.getPullTPS(), status.getPullRT()));
        }
        return found;
    }

    private static DefaultMQAdminExt started(JsonObject request) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(request.get("namesrv").getAsString());
        admin.setInstanceName(Long.toString(System.nanoTime()));
        admin.start();
        return admin;
    }
}
