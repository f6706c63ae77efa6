package judge;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;

/** Message traces as Java's clients read and write them. */
final class Tracing {
    private Tracing() {
    }

    /** What Java reads in the text of a message of traces, and that text as Java writes it. */
    static Object read(JsonObject request) {
        List<Object> read = new ArrayList<>();
        StringBuilder written = new StringBuilder();
        for (TraceContext trace : TraceDataEncoder.decoderFromTraceDataString(request.get("text").getAsString())) {
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("type", trace.getTraceType().name());
            one.put("group", trace.getGroupName());
            one.put("msgId", trace.getTraceBeans().get(0).getMsgId());
            one.put("keys", trace.getTraceBeans().get(0).getKeys());
            one.put("success", trace.isSuccess());
            read.add(one);
            trace.setAccessChannel(AccessChannel.LOCAL);
            written.append(TraceDataEncoder.encoderFromContextBean(trace).getTransData());
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("traces", read);
        answer.put("text", written.toString());
        return answer;
    }
}
