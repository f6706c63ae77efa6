package judge;

import com.google.gson.JsonObject;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.remoting.RPCHook;

/** The running clients by the names the tests gave them, and what all of them share in their requests. */
final class Named {
    /** A started client: what it is, and how to stop it. */
    static final class Entry {
        final Object client;
        final Runnable stop;

        Entry(Object client, Runnable stop) {
            this.client = client;
            this.stop = stop;
        }
    }

    private static final Map<String, Entry> RUNNING = new ConcurrentHashMap<>();

    private Named() {
    }

    static void add(String name, Object client, Runnable stop) {
        if (RUNNING.putIfAbsent(name, new Entry(client, stop)) != null) {
            stop.run();
            throw new IllegalStateException("already running: " + name);
        }
    }

    static <T> T get(JsonObject request, Class<T> kind) {
        Entry entry = RUNNING.get(request.get("name").getAsString());
        if (entry == null) {
            throw new IllegalStateException("not running: " + request.get("name"));
        }
        return kind.cast(entry.client);
    }

    static Object stop(JsonObject request) {
        Entry entry = RUNNING.remove(request.get("name").getAsString());
        if (entry == null) {
            return false;
        }
        entry.stop.run();
        return true;
    }

    /** Signs requests by the account in the request; null without one. Found by name, since 5.x may have no such class. */
    static RPCHook signer(JsonObject request) throws ReflectiveOperationException {
        if (!request.has("accessKey")) {
            return null;
        }
        Class<?> keys = Class.forName("org.apache.rocketmq.acl.common.SessionCredentials");
        Object account = keys.getConstructor(String.class, String.class)
            .newInstance(request.get("accessKey").getAsString(), request.get("secretKey").getAsString());
        Class<?> hook = Class.forName("org.apache.rocketmq.acl.common.AclClientRPCHook");
        return (RPCHook) hook.getConstructor(keys).newInstance(account);
    }

    static String text(JsonObject request, String key, String fallback) {
        return request.has(key) && !request.get(key).isJsonNull() ? request.get(key).getAsString() : fallback;
    }

    static long number(JsonObject request, String key, long fallback) {
        return request.has(key) && !request.get(key).isJsonNull() ? request.get(key).getAsLong() : fallback;
    }

    static boolean flag(JsonObject request, String key, boolean fallback) {
        return request.has(key) && !request.get(key).isJsonNull() ? request.get(key).getAsBoolean() : fallback;
    }
}
