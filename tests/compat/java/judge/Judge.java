package judge;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * Apache's own clients and mqadmin as a command server: one JSON request a line on stdin, one JSON answer a line on
 * stdout. A request is {"id":n,"op":"...",...}; its answer {"id":n,"ok":...} or {"id":n,"error":{...}}. Requests run at
 * the same time, each on a thread of its own; the end of stdin ends the program. System.out belongs to mqadmin.
 */
public final class Judge {
    interface Operation {
        Object run(JsonObject request) throws Exception;
    }

    static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
    private static final Map<String, Operation> OPERATIONS = new ConcurrentHashMap<>();

    private Judge() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err);
        Admin.install();
        register();
        answer(answers, "ready", System.getProperty("java.version"));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            Thread worker = new Thread(() -> handle(request, answers), "judge-" + request.get("id"));
            worker.setDaemon(true);
            worker.start();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void register() {
        OPERATIONS.put("serialize", Judge::serialize);
        OPERATIONS.put("admin", Admin::run);
        OPERATIONS.put("producer", Producing::start);
        OPERATIONS.put("heartbeat", Producing::heartbeat);
        OPERATIONS.put("send", Producing::send);
        OPERATIONS.put("push", Pushing::start);
        OPERATIONS.put("received", Pushing::received);
        OPERATIONS.put("assigned", Pushing::assigned);
        OPERATIONS.put("consumed", Pushing::consumed);
        OPERATIONS.put("pull-consumer", Pulling::start);
        OPERATIONS.put("queues", Pulling::queues);
        OPERATIONS.put("pull", Pulling::pull);
        OPERATIONS.put("offset", Pulling::offset);
        OPERATIONS.put("commit", Pulling::commit);
        OPERATIONS.put("sharing", Sharing::start);
        OPERATIONS.put("share", Sharing::share);
        OPERATIONS.put("share-pulled", Sharing::pulled);
        OPERATIONS.put("lite", LitePulling::start);
        OPERATIONS.put("poll", LitePulling::poll);
        OPERATIONS.put("lite-assignment", LitePulling::assignment);
        OPERATIONS.put("lite-assign", LitePulling::assign);
        OPERATIONS.put("lite-seek", LitePulling::seek);
        OPERATIONS.put("lite-commit", LitePulling::commit);
        OPERATIONS.put("lite-time", LitePulling::time);
        OPERATIONS.put("transactional", Transacting::start);
        OPERATIONS.put("transact", Transacting::send);
        OPERATIONS.put("asked", Transacting::asked);
        OPERATIONS.put("replier", Requesting::start);
        OPERATIONS.put("request", Requesting::request);
        OPERATIONS.put("read-traces", Tracing::read);
        OPERATIONS.put("consume-status", Asking::consumeStatus);
        OPERATIONS.put("exporter-figures", Asking::exporterFigures);
        OPERATIONS.put("stop", Named::stop);
        OPERATIONS.put("load", Load::run);
    }

    private static void handle(JsonObject request, PrintStream answers) {
        Map<String, Object> outcome = new LinkedHashMap<>();
        outcome.put("id", request.get("id").getAsLong());
        try {
            Operation operation = OPERATIONS.get(request.get("op").getAsString());
            if (operation == null) {
                throw new IllegalArgumentException("no such operation: " + request.get("op"));
            }
            outcome.put("ok", operation.run(request));
        } catch (Throwable failure) {
            outcome.put("error", describe(failure));
        }
        write(answers, GSON.toJson(outcome));
    }

    private static void answer(PrintStream answers, String key, Object value) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put(key, value);
        write(answers, GSON.toJson(line));
    }

    private static void write(PrintStream answers, String line) {
        synchronized (answers) {
            answers.println(line);
            answers.flush();
        }
    }

    /** What went wrong, with the response code of the broker where there was one. */
    static Map<String, Object> describe(Throwable failure) {
        Map<String, Object> error = new LinkedHashMap<>();
        error.put("type", failure.getClass().getSimpleName());
        error.put("message", String.valueOf(failure.getMessage()));
        if (failure instanceof MQBrokerException) {
            error.put("code", ((MQBrokerException) failure).getResponseCode());
        } else if (failure instanceof MQClientException) {
            error.put("code", ((MQClientException) failure).getResponseCode());
        }
        StringWriter trace = new StringWriter();
        failure.printStackTrace(new PrintWriter(trace));
        error.put("trace", trace.toString());
        return error;
    }

    /** Chooses the header form of all clients here, as -Drocketmq.serialize.type does at start-up. */
    private static Object serialize(JsonObject request) throws Exception {
        Field form = RemotingCommand.class.getDeclaredField("serializeTypeConfigInThisServer");
        form.setAccessible(true);
        form.set(null, SerializeType.valueOf(request.get("type").getAsString()));
        return RemotingCommand.getSerializeTypeConfigInThisServer().name();
    }
}
