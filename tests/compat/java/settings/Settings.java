import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.TreeMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Prints the default of every field of the configuration classes: "class field=value", with (empty) for null. */
public class Settings {
    public static void main(String[] arguments) throws Exception {
        Object[] configurations = {
            new BrokerConfig(), new MessageStoreConfig(), new NettyServerConfig(), new NettyClientConfig(),
            new NamesrvConfig(),
        };
        for (Object each : configurations) {
            TreeMap<String, Object> found = new TreeMap<>();
            for (Field field : each.getClass().getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    field.setAccessible(true);
                    Object value = field.get(each);
                    found.put(field.getName(), value == null ? "(empty)" : value);
                }
            }
            found.forEach((name, value) ->
                System.out.println(each.getClass().getSimpleName() + " " + name + "=" + value));
        }
    }
}
