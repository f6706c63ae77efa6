// Writes allocations.tsv of this folder with Apache RocketMQ's own strategies.
// Needs rocketmq-client 4.9.7 and what it depends on on the class path:
//   javac -cp "$JARS" -d out Capture.java && java -cp "$JARS:out" Capture <this folder>
// A line: strategy, queues (broker:id, topic T), client ids, the client that asks, its queues.

import java.io.PrintWriter;
import java.nio.file.*;
import java.util.*;
import java.util.stream.*;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.*;
import org.apache.rocketmq.common.message.MessageQueue;

public class Capture {
    static PrintWriter out;

    static String text(List<MessageQueue> queues) {
        return queues.stream().map(mq -> mq.getBrokerName() + ":" + mq.getQueueId()).collect(Collectors.joining(","));
    }

    static void put(String name, AllocateMessageQueueStrategy strategy, List<MessageQueue> queues, List<String> clients) {
        Collections.sort(queues);
        Collections.sort(clients);
        List<String> askers = new ArrayList<>(clients);
        askers.add("stranger");
        for (String client : askers) {
            List<MessageQueue> result = strategy.allocate("group", client, queues, clients);
            out.println(String.join("\t", name, text(queues), String.join(",", clients), client, text(result)));
        }
    }

    static List<MessageQueue> queues(int each, String... brokers) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String broker : brokers) {
            for (int id = 0; id < each; id++) {
                queues.add(new MessageQueue("T", broker, id));
            }
        }
        return queues;
    }

    static List<String> clients(int count) {
        String[] all = {"10.0.0.1@4711#123456789", "10.0.0.2@DEFAULT", "192.168.1.77@12@unit", "c4", "C5", "\u4e2d6",
            "2001:db8::1@9#9", "c-0", "c-1"};
        return new ArrayList<>(Arrays.asList(all).subList(0, count));
    }

    static AllocateMessageQueueStrategy nearby(AllocateMessageQueueStrategy inner) {
        return new AllocateMachineRoomNearby(inner, new AllocateMachineRoomNearby.MachineRoomResolver() {
            public String brokerDeployIn(MessageQueue queue) {
                return queue.getBrokerName().split("@")[0];
            }

            public String consumerDeployIn(String client) {
                return client.split("-")[0];
            }
        });
    }

    public static void main(String[] args) throws Exception {
        out = new PrintWriter(Files.newBufferedWriter(Paths.get(args[0], "allocations.tsv")));
        for (int each : new int[] {1, 3, 8}) {
            for (int count : new int[] {1, 2, 3, 5, 9}) {
                List<MessageQueue> queues = queues(each, "broker-a", "broker-b");
                put("AVG", new AllocateMessageQueueAveragely(), queues, clients(count));
                put("AVG_BY_CIRCLE", new AllocateMessageQueueAveragelyByCircle(), queues, clients(count));
                put("CONSISTENT_HASH", new AllocateMessageQueueConsistentHash(), queues, clients(count));
                put("CONSISTENT_HASH 3", new AllocateMessageQueueConsistentHash(3), queues, clients(count));
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new HashSet<>(Arrays.asList("r1", "r3", "")));
                put("MACHINE_ROOM r1,r3,", rooms,
                    queues(each, "r1@a", "r1@b", "r2@c", "r3@d", "plain", "r1@x@y", "@e", "r1@", "r3@z@"), clients(count));
            }
        }
        AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
        config.setMessageQueueList(queues(2, "broker-b"));
        List<MessageQueue> all = queues(3, "broker-a", "broker-b");
        out.println(String.join("\t", "CONFIG broker-b:0,broker-b:1", text(all), "c1,c2", "c1",
            text(config.allocate("group", "c1", all, Arrays.asList("c1", "c2")))));
        String[][] members = {{"r1-1"}, {"r1-1", "r1-2"}, {"r1-1", "r2-1", "r2-2"}, {"r1-1", "r2-1", "r3-1", "r9-1"}, {"r9-1", "r9-2"}};
        for (String[] clients : members) {
            for (int each : new int[] {1, 4, 5}) {
                List<MessageQueue> queues = queues(each, "r1@a", "r2@b", "r2@c", "r3@d");
                List<String> ids = new ArrayList<>(Arrays.asList(clients));
                for (AllocateMessageQueueStrategy inner : Arrays.asList(new AllocateMessageQueueAveragely(),
                    new AllocateMessageQueueAveragelyByCircle(), new AllocateMessageQueueConsistentHash())) {
                    AllocateMessageQueueStrategy strategy = nearby(inner);
                    Collections.sort(queues);
                    for (String client : ids) {
                        out.println(String.join("\t", strategy.getName(), text(queues), String.join(",", ids), client,
                            text(strategy.allocate("group", client, queues, ids))));
                    }
                }
            }
        }
        out.close();
    }
}
