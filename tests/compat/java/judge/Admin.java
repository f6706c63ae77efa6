package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.security.Permission;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin's own main, many times in one JVM; its System.exit becomes the answer's exit code. */
final class Admin {
    private static final Object ONE_AT_A_TIME = new Object();

    /** An Error, because mqadmin catches every Exception. */
    private static final class Exit extends Error {
        final int status;

        Exit(int status) {
            super("exit " + status);
            this.status = status;
        }
    }

    private Admin() {
    }

    /** Makes System.exit an exception; works up to Java 17 with -Djava.security.manager=allow. */
    @SuppressWarnings("removal")
    static void install() {
        System.setSecurityManager(new SecurityManager() {
            @Override
            public void checkPermission(Permission permission) {
            }

            @Override
            public void checkPermission(Permission permission, Object context) {
            }

            @Override
            public void checkExit(int status) {
                throw new Exit(status);
            }
        });
    }

    static Object run(JsonObject request) throws Exception {
        List<String> line = new ArrayList<>();
        for (JsonElement word : request.getAsJsonArray("line")) {
            line.add(word.getAsString());
        }
        synchronized (ONE_AT_A_TIME) {
            return run(line);
        }
    }

    /** The command objects live as long as the JVM, and some of them keep a client that was shut down. */
    private static void forgetCommands() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) && List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    private static Object run(List<String> line) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream formerOut = System.out;
        PrintStream formerErr = System.err;
        long begun = System.nanoTime();
        int status = 0;
        System.setOut(new PrintStream(out, true, "UTF-8"));
        System.setErr(new PrintStream(err, true, "UTF-8"));
        try {
            forgetCommands();
            MQAdminStartup.main(line.toArray(new String[0]));
        } catch (Exit exit) {
            status = exit.status;
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(formerOut);
            System.setErr(formerErr);
        }
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("stdout", out.toString("UTF-8"));
        all.put("stderr", err.toString("UTF-8"));
        all.put("exit", status);
        all.put("ms", (System.nanoTime() - begun) / 1_000_000);
        return all;
    }
}
