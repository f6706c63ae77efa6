// Writes the texts of this folder with Apache RocketMQ's own classes and fastjson 1.2.69.
// Needs rocketmq-broker 4.9.7 and what it depends on on the class path:
//   javac -cp "$JARS" -d out Capture.java && java -cp "$JARS:out" Capture <this folder>

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.common.*;
import org.apache.rocketmq.common.admin.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.protocol.body.*;
import org.apache.rocketmq.common.protocol.header.GetConsumerListByGroupResponseBody;
import org.apache.rocketmq.common.protocol.heartbeat.*;
import org.apache.rocketmq.common.protocol.route.*;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.remoting.protocol.*;

public class Capture {
    static Path folder;

    static void put(String name, String text) throws Exception {
        Files.write(folder.resolve(name), text.getBytes(StandardCharsets.UTF_8));
    }

    static void put(String name, Object value) throws Exception {
        put(name, RemotingSerializable.toJson(value, false));
    }

    static void putPretty(String name, Object value) throws Exception {
        put(name, RemotingSerializable.toJson(value, true));
    }

    static String standard(Object value) {
        return JSON.toJSONString(value, SerializerFeature.BrowserCompatible,
            SerializerFeature.QuoteFieldNames, SerializerFeature.SkipTransientField,
            SerializerFeature.MapSortField);
    }

    static MessageQueue mq(int id) {
        return new MessageQueue("T1", "lab-a", id);
    }

    static DataVersion version(long counter, long timestamp) {
        DataVersion version = new DataVersion();
        version.setTimestamp(timestamp);
        version.setCounter(new java.util.concurrent.atomic.AtomicLong(counter));
        return version;
    }

    static SubscriptionData subscription() throws Exception {
        SubscriptionData data = FilterAPI.buildSubscriptionData("T1", "TagA || TagB");
        data.setSubVersion(1700000000123L);
        data.setTagsSet(new LinkedHashSet<>(Arrays.asList("TagA", "TagB")));
        data.setCodeSet(new LinkedHashSet<>(Arrays.asList("TagA".hashCode(), "TagB".hashCode())));
        return data;
    }

    static SubscriptionData oneTag(String topic, String tag) throws Exception {
        SubscriptionData data = FilterAPI.buildSubscriptionData(topic, tag);
        data.setSubVersion(1700000000123L);
        return data;
    }

    static Connection connection() {
        Connection connection = new Connection();
        connection.setClientAddr("10.0.0.1:5");
        connection.setClientId("c1");
        connection.setLanguage(LanguageCode.GO);
        connection.setVersion(317);
        return connection;
    }

    static Set<Connection> connections() {
        return new HashSet<>(Collections.singleton(connection()));
    }

    public static void main(String[] args) throws Exception {
        folder = Paths.get(args[0]);
        routes();
        topics();
        clients();
        offsets();
        rest();
        readings();
        subscriptions();
        texts();
    }

    static void routes() throws Exception {
        TopicRouteData route = new TopicRouteData();
        HashMap<Long, String> addresses = new HashMap<>();
        addresses.put(0L, "10.0.0.1:10911");
        addresses.put(1L, "10.0.0.2:10911");
        List<BrokerData> brokers = new ArrayList<>();
        brokers.add(new BrokerData("Größe/1", "lab-a", addresses));
        route.setBrokerDatas(brokers);
        QueueData queue = new QueueData();
        queue.setBrokerName("lab-a");
        queue.setPerm(6);
        queue.setReadQueueNums(4);
        queue.setWriteQueueNums(8);
        queue.setTopicSysFlag(1);
        route.setQueueDatas(new ArrayList<>(Collections.singletonList(queue)));
        route.setFilterServerTable(new HashMap<>());
        put("route.json", route);
        put("route.standard.json", standard(route));
        route.setOrderTopicConf("lab-a:4");
        put("route.ordered.json", route);
        ClusterInfo cluster = new ClusterInfo();
        HashMap<String, BrokerData> table = new HashMap<>();
        table.put("lab-a", brokers.get(0));
        cluster.setBrokerAddrTable(table);
        HashMap<String, Set<String>> clusters = new HashMap<>();
        clusters.put("LabCluster", new HashSet<>(Collections.singleton("lab-a")));
        cluster.setClusterAddrTable(clusters);
        put("cluster.json", cluster);
    }

    static void topics() throws Exception {
        TopicConfigSerializeWrapper topics = new TopicConfigSerializeWrapper();
        topics.setDataVersion(version(3, 1700000000123L));
        ConcurrentMap<String, TopicConfig> table = new ConcurrentHashMap<>();
        table.put("T1", new TopicConfig("T1", 8, 4, 7));
        topics.setTopicConfigTable(table);
        put("topics.json", topics);
        putPretty("topics.pretty.json", topics);
        put("topic.txt", table.get("T1").toString());
        RegisterBrokerBody register = new RegisterBrokerBody();
        register.setTopicConfigSerializeWrapper(topics);
        put("register.json", register);
        Files.write(folder.resolve("register.compressed"), register.encode(true));
        SubscriptionGroupWrapper groups = new SubscriptionGroupWrapper();
        groups.setDataVersion(version(3, 1700000000123L));
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName("G1");
        groups.getSubscriptionGroupTable().put("G1", group);
        put("groups.json", groups);
        putPretty("groups.pretty.json", groups);
        put("group.txt", group.toString());
        TopicList names = new TopicList();
        names.setTopicList(new HashSet<>(Collections.singleton("T1")));
        put("topiclist.json", names);
        names.setBrokerAddr("10.0.0.1:10911");
        put("topiclist.304.json", names);
        GroupList list = new GroupList();
        list.setGroupList(new HashSet<>(Collections.singleton("G1")));
        put("grouplist.json", list);
        KVTable table2 = new KVTable();
        table2.getTable().put("T1", "lab-a:4");
        put("kvtable.json", table2);
        TopicStatsTable stats = new TopicStatsTable();
        TopicOffset offset = new TopicOffset();
        offset.setMaxOffset(5);
        offset.setLastUpdateTimestamp(1700000000123L);
        stats.getOffsetTable().put(mq(0), offset);
        put("topicstats.json", stats);
    }

    static void clients() throws Exception {
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID("10.0.0.1@1");
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName("G1");
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.getSubscriptionDataSet().add(oneTag("T1", "TagA"));
        heartbeat.getConsumerDataSet().add(consumer);
        ProducerData producer = new ProducerData();
        producer.setGroupName("PG");
        heartbeat.getProducerDataSet().add(producer);
        put("heartbeat.json", heartbeat);
        put("subscription.json", subscription());
        GetConsumerListByGroupResponseBody ids = new GetConsumerListByGroupResponseBody();
        ids.setConsumerIdList(Arrays.asList("c1", "c2"));
        put("consumerids.json", ids);
        LockBatchRequestBody lock = new LockBatchRequestBody();
        lock.setClientId("c1");
        lock.setConsumerGroup("G1");
        lock.getMqSet().add(mq(1));
        put("lock.json", lock);
        LockBatchResponseBody locked = new LockBatchResponseBody();
        locked.getLockOKMQSet().add(mq(1));
        put("locked.json", locked);
        CheckClientRequestBody check = new CheckClientRequestBody();
        check.setClientId("c1");
        check.setGroup("G1");
        check.setSubscriptionData(oneTag("T1", "TagA"));
        put("check.json", check);
        ConsumerConnection members = new ConsumerConnection();
        members.setConnectionSet(new HashSet<>(connections()));
        members.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        members.setMessageModel(MessageModel.CLUSTERING);
        members.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        members.getSubscriptionTable().put("T1", oneTag("T1", "TagA"));
        put("consumerconnection.json", members);
        ProducerConnection producers = new ProducerConnection();
        producers.setConnectionSet(new HashSet<>(connections()));
        put("producerconnection.json", producers);
        Map<String, List<ProducerInfo>> all = new HashMap<>();
        all.put("PG", Collections.singletonList(
            new ProducerInfo("c1", "/10.0.0.1:5", LanguageCode.GO, 317, 1700000000123L)));
        put("producers.json", new ProducerTableInfo(all));
    }

    public static class Offsets {
        private final Map<String, ConcurrentMap<Integer, Long>> offsetTable = new LinkedHashMap<>();
        public Map<String, ConcurrentMap<Integer, Long>> getOffsetTable() { return offsetTable; }
    }

    public static class Levels {
        private final ConcurrentMap<Integer, Long> offsetTable = new ConcurrentHashMap<>();
        public ConcurrentMap<Integer, Long> getOffsetTable() { return offsetTable; }
    }

    public static class Local {
        private final Map<MessageQueue, Long> offsetTable = new LinkedHashMap<>();
        public Map<MessageQueue, Long> getOffsetTable() { return offsetTable; }
    }

    static void offsets() throws Exception {
        Offsets offsets = new Offsets();
        offsets.getOffsetTable().put("T1@G1", new ConcurrentHashMap<>(Map.of(0, 5L)));
        offsets.getOffsetTable().get("T1@G1").put(1, 6L);
        offsets.getOffsetTable().put("T2@G1", new ConcurrentHashMap<>());
        put("consumeroffset.json", offsets);
        putPretty("consumeroffset.pretty.json", offsets);
        Levels levels = new Levels();
        putPretty("delayoffset.empty.pretty.json", levels);
        levels.getOffsetTable().put(3, 3L);
        levels.getOffsetTable().put(4, 7L);
        put("delayoffset.json", levels);
        putPretty("delayoffset.pretty.json", levels);
        Local local = new Local();
        local.getOffsetTable().put(mq(0), 5L);
        local.getOffsetTable().put(mq(1), 6L);
        putPretty("localoffsets.pretty.json", local);
        ResetOffsetBody reset = new ResetOffsetBody();
        reset.setOffsetTable(new LinkedHashMap<>(local.getOffsetTable()));
        put("reset.json", reset);
        ResetOffsetBodyForC listed = new ResetOffsetBodyForC();
        listed.setOffsetTable(Arrays.asList(new MessageQueueForC("T1", "lab-a", 0, 5),
            new MessageQueueForC("T1", "lab-a", 1, 6)));
        put("reset.list.json", listed);
        GetConsumerStatusBody status = new GetConsumerStatusBody();
        Map<String, Map<MessageQueue, Long>> members = new HashMap<>();
        members.put("10.0.0.1@1", new HashMap<>(Collections.singletonMap(mq(0), 5L)));
        status.setConsumerTable(members);
        put("consumerstatus.223.json", status);
        status.setMessageQueueTable(members.get("10.0.0.1@1"));
        put("consumerstatus.ref.json", status);
        status.setConsumerTable(new HashMap<>());
        put("consumerstatus.221.json", status);
        ConsumeStats stats = new ConsumeStats();
        stats.setConsumeTps(33.5);
        OffsetWrapper wrapper = new OffsetWrapper();
        wrapper.setBrokerOffset(10);
        wrapper.setConsumerOffset(3);
        wrapper.setLastTimestamp(1700000000123L);
        stats.getOffsetTable().put(mq(0), wrapper);
        put("consumestats.json", stats);
        ConsumeStatsList list = new ConsumeStatsList();
        list.setBrokerAddr("10.0.0.1:10911");
        list.setTotalDiff(7);
        list.getConsumeStatsList().add(Collections.singletonMap("G1", Collections.singletonList(stats)));
        list.getConsumeStatsList().add(Collections.singletonMap("G2", Collections.emptyList()));
        put("consumestatslist.json", list);
        QueryCorrectionOffsetBody correction = new QueryCorrectionOffsetBody();
        correction.setCorrectionOffsets(new HashMap<>(Map.of(0, 9L)));
        put("correction.json", correction);
    }

    static void rest() throws Exception {
        BrokerStatsData stats = new BrokerStatsData();
        BrokerStatsItem item = new BrokerStatsItem();
        item.setSum(12);
        item.setTps(0.2);
        item.setAvgpt(1.0e-4);
        stats.setStatsMinute(item);
        stats.setStatsHour(item);
        stats.setStatsDay(new BrokerStatsItem());
        put("brokerstats.ref.json", stats);
        ConsumerRunningInfo info = new ConsumerRunningInfo();
        ProcessQueueInfo queue = new ProcessQueueInfo();
        queue.setCachedMsgCount(2);
        queue.setCachedMsgSizeInMiB(1);
        queue.setLocked(true);
        info.getMqTable().put(mq(0), queue);
        info.getMqTable().put(mq(1), new ProcessQueueInfo());
        info.getProperties().setProperty("PROP_CONSUMEORDERLY", "false");
        ConsumeStatus pace = new ConsumeStatus();
        pace.setConsumeOKTPS(12345678.9);
        info.getStatusTable().put("T1", pace);
        info.getSubscriptionSet().add(oneTag("T1", "TagA"));
        put("running.json", info);
        ConsumeMessageDirectlyResult result = new ConsumeMessageDirectlyResult();
        result.setConsumeResult(CMResult.CR_SUCCESS);
        put("directly.json", result);
        QueryConsumeQueueResponseBody page = new QueryConsumeQueueResponseBody();
        page.setMaxQueueIndex(4);
        ConsumeQueueData unit = new ConsumeQueueData();
        unit.setPhysicSize(176);
        unit.setTagsCode(2598919);
        page.setQueueData(Collections.singletonList(unit));
        put("queuepage.json", page);
        page.setSubscriptionData(oneTag("T1", "*"));
        page.setFilterData("null");
        put("queuepage.group.json", page);
        QueryConsumeTimeSpanBody spans = new QueryConsumeTimeSpanBody();
        QueueTimeSpan span = new QueueTimeSpan();
        span.setMessageQueue(mq(0));
        span.setMinTimeStamp(1700000000123L);
        span.setMaxTimeStamp(1700000000123L);
        span.setConsumeTimeStamp(1700000000123L);
        span.setDelayTime(9);
        spans.setConsumeTimeSpanSet(Collections.singletonList(span));
        put("timespans.json", spans);
        AclConfig acl = new AclConfig();
        acl.setGlobalWhiteAddrs(Collections.emptyList());
        PlainAccessConfig account = new PlainAccessConfig();
        account.setAccessKey("RocketMQ");
        account.setSecretKey("12345678");
        account.setDefaultGroupPerm("SUB");
        account.setDefaultTopicPerm("DENY");
        account.setTopicPerms(Collections.singletonList("T1=PUB|SUB"));
        acl.setPlainAccessConfigs(Collections.singletonList(account));
        put("acl.json", acl);
        ConsumerFilterManager filters = new ConsumerFilterManager();
        filters.register("T", "g", "a > 5", "SQL92", 1700000000123L);
        filters.get("T", "g").setBornTime(1700000000123L);
        put("filters.json", filters.encode(false));
        put("filters.pretty.json", filters.encode(true));
        put("aclversions.json", Collections.singletonMap("/etc/plain_acl.yml", version(1, 1700000000123L)));
    }

    public static class Sample {
        private Map<Long, String> longs;
        private Map<MessageQueue, Long> queues;
        private int number;
        private double real;
        private boolean flag;
        private String text;
        private List<String> list;
        private LanguageCode language;
        public Map<Long, String> getLongs() { return longs; }
        public void setLongs(Map<Long, String> value) { longs = value; }
        public Map<MessageQueue, Long> getQueues() { return queues; }
        public void setQueues(Map<MessageQueue, Long> value) { queues = value; }
        public int getNumber() { return number; }
        public void setNumber(int value) { number = value; }
        public double getReal() { return real; }
        public void setReal(double value) { real = value; }
        public boolean isFlag() { return flag; }
        public void setFlag(boolean value) { flag = value; }
        public String getText() { return text; }
        public void setText(String value) { text = value; }
        public List<String> getList() { return list; }
        public void setList(List<String> value) { list = value; }
        public LanguageCode getLanguage() { return language; }
        public void setLanguage(LanguageCode value) { language = value; }
    }

    // Each text as fastjson reads it into a Sample: what it writes again, or "refused".
    static void readings() throws Exception {
        String key = "{\"brokerName\":\"b\",\"queueId\":3,\"topic\":\"T\"}";
        String[] inputs = {
            "{\"longs\":{0:\"x\",1:\"y\"}}", "{\"longs\":{\"0\":\"x\"}}", "{longs:{0:'x',-1:'y'}}",
            "{\"queues\":{" + key + ":5}}", "{\"queues\":{\"" + key.replace("\"", "\\\"") + "\":5}}",
            "{ \"queues\" : { { \"topic\" : \"T\" , brokerName:'b', queueId:3 } : 5 , } }",
            "{\"number\":7,}", "{,\"number\":7}", "{\"number\":7,,\"flag\":true}", "{\"list\":[\"a\",\"b\",]}",
            "{\"list\":[,\"a\"]}", "{\"list\":[\"a\",,\"b\"]}", "{\"list\":null}", "{\"list\":[]}",
            "/* c */{\"number\":7}", "{// c\n\"number\":7}", "{\"number\":/*c*/7/*d*/}",
            "{\"number\":\"7\"}", "{\"number\":\"\"}", "{\"number\":null}", "{\"number\":\"null\"}",
            "{\"number\":7.0}", "{\"number\":true}", "{\"number\":\"x\"}", "{\"number\":2147483648}",
            "{\"number\":7L}", "{\"number\":-7}", "{\"number\":+7}", "{\"number\":[]}", "{\"number\":07}",
            "{\"real\":1}", "{\"real\":\"1.5\"}", "{\"real\":null}", "{\"real\":NaN}", "{\"real\":1.5E3}",
            "{\"real\":1e-3}", "{\"real\":1.5D}", "{\"real\":1.5F}", "{\"real\":.5}", "{\"real\":5.}",
            "{\"flag\":1}", "{\"flag\":0}", "{\"flag\":\"true\"}", "{\"flag\":\"1\"}", "{\"flag\":\"Y\"}",
            "{\"flag\":\"x\"}", "{\"flag\":TRUE}", "{\"flag\":\"TRUE\"}", "{\"flag\":null}",
            "{\"text\":5}", "{\"text\":true}", "{\"text\":1.50}", "{\"text\":null}", "{\"text\":{\"a\":1}}",
            "{\"text\":[1,2]}", "{\"text\":'it\\'s'}", "{'text':'a\"b'}", "{\"text\":\"a\\x41\\u0042\\/\\b\\v\\0\"}",
            "{\"text\":\"\\q\"}", "{\"text\":\"a\nb\"}", "{\"text\":\"\\uD83D\\uDE00\"}", "{\"text\":undefined}",
            "{\"language\":\"GO\"}", "{\"language\":\"MARTIAN\"}", "{\"language\":9}", "{\"language\":null}",
            "{\"unknown\":{\"a\":[1,{\"b\":2}]},\"number\":7}", "{text:\"x\"}", "{text:x}", "{$ref:5}",
            "{\"number\":7} x", "{\"number\":7}}", "{\"number\":7", "{\"number\"}", "{\"number\":}", "[]", "7", "",
            "{\"number\":7 \"flag\":true}", "{\"list\":[\"a\" \"b\"]}", "{\"text\":\"a}", "{\"list\":\"a\"}",
            "{\"longs\":{\"x\":\"y\"}}", "{\"longs\":[]}", "{\"queues\":{\"x\":5}}", "{\"queues\":[]}",
            "{\"list\":[1,true,null,\"x\"]}", "{\"number\":7,\"number\":8}", "{\"longs\":{0:null,1:\"y\"}}",
        };
        StringBuilder lines = new StringBuilder();
        for (String input : inputs) {
            String result;
            try {
                result = JSON.toJSONString(JSON.parseObject(input, Sample.class));
            } catch (Throwable error) {
                result = "refused";
            }
            lines.append(JSON.toJSONString(new String[] {input, result})).append('\n');
        }
        put("readings.jsonl", lines.toString());
    }

    static void subscriptions() throws Exception {
        StringBuilder lines = new StringBuilder();
        for (String text : new String[] {null, "", "*", " * ", "TagA", "TagA || TagB", "TagA||TagB||",
            " TagA ", "||", " || ", "||TagA", "TagA | TagB", "标签", "TagA || TagA"}) {
            String result;
            try {
                SubscriptionData data = FilterAPI.buildSubscriptionData("T1", text);
                data.setSubVersion(0);
                data.setTagsSet(new TreeSet<>(data.getTagsSet()));
                data.setCodeSet(new TreeSet<>(data.getCodeSet()));
                result = JSON.toJSONString(data);
            } catch (Throwable error) {
                result = "refused " + error.getMessage();
            }
            lines.append(JSON.toJSONString(new String[] {text, result})).append('\n');
        }
        put("subscriptions.jsonl", lines.toString());
    }

    static void texts() throws Exception {
        StringBuilder lines = new StringBuilder();
        for (int unit = 0; unit < 0x2100; unit++) {
            String text = "x" + (char) unit + "y";
            lines.append(standard(text)).append('\t').append(JSON.toJSONString(text)).append('\n');
        }
        lines.append(standard("\ud83d\ude00")).append('\t').append(JSON.toJSONString("\ud83d\ude00")).append('\n');
        put("escapes.tsv", lines.toString());
        StringBuilder doubles = new StringBuilder();
        for (double value : new double[] {0, -0.0, 1, -1, 0.5, 100, 1e6, 9999999, 1e7, 12345678.9, 1.5e10,
            1e-3, 9.99e-4, 1e-5, 1.2345678901234568E17, Double.MAX_VALUE, Double.MIN_NORMAL, 0.1, 1 / 3.0,
            100.0 / 3, 1e21, 1e22, 1e23, 2e-3, 123.456, -0.01, 3.0e-44, 9007199254740993.0, 1e-2, 5e-1}) {
            doubles.append(Double.doubleToRawLongBits(value)).append(' ').append(JSON.toJSONString(value)).append('\n');
        }
        put("doubles.txt", doubles.toString());
    }
}
