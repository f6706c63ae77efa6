package judge;

import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * The load of the benchmark: the same program for whichever broker stands behind the name server. Every kind answers
 * with the messages acknowledged (or consumed), the failures, the elapsed time and the percentiles of its latency.
 */
final class Load {
    /** So many failures of a measure are told with their words. */
    private static final int FAILURES = 20;

    private Load() {
    }

    static Object run(JsonObject request) throws Exception {
        switch (request.get("kind").getAsString()) {
            case "sync":
                return sync(request);
            case "ordered":
                return ordered(request);
            case "async":
                return async(request);
            case "batch":
                return batch(request);
            case "consume":
                return consume(request);
            case "latency":
                return latency(request);
            default:
                throw new IllegalArgumentException("kind: sync, ordered, async, batch, consume or latency");
        }
    }

    private static Object sync(JsonObject request) throws Exception {
        DefaultMQProducer producer = Named.get(request, DefaultMQProducer.class);
        byte[] body = new byte[(int) Named.number(request, "size", 128)];
        String topic = request.get("topic").getAsString();
        return threads(request, 1, () -> producer.send(new Message(topic, "TagA", body)));
    }

    /** Each thread's messages go to the queue of its number; a send by a selector is not tried again by the client. */
    private static Object ordered(JsonObject request) throws Exception {
        DefaultMQProducer producer = Named.get(request, DefaultMQProducer.class);
        byte[] body = new byte[(int) Named.number(request, "size", 128)];
        String topic = request.get("topic").getAsString();
        return threads(request, 1, () -> producer.send(
            new Message(topic, "TagA", body),
            (queues, message, thread) -> queues.get((int) ((long) thread % queues.size())),
            Thread.currentThread().getId()));
    }

    private static Object batch(JsonObject request) throws Exception {
        DefaultMQProducer producer = Named.get(request, DefaultMQProducer.class);
        byte[] body = new byte[(int) Named.number(request, "size", 128)];
        String topic = request.get("topic").getAsString();
        int each = (int) Named.number(request, "each", 32);
        return threads(request, each, () -> {
            List<Message> messages = new ArrayList<>(each);
            for (int i = 0; i < each; i++) {
                messages.add(new Message(topic, "TagA", body));
            }
            return producer.send(messages);
        });
    }

    private interface Send {
        SendResult once() throws Exception;
    }

    /**
     * So many threads call the send again and again until the time is over, with a rest of restMs after a failure;
     * pauseMs is the longest time without a success of any of them, failures are the words of the first failures.
     */
    private static Object threads(JsonObject request, int each, Send send) throws Exception {
        int threads = (int) Named.number(request, "threads", 1);
        long lasting = Named.number(request, "ms", 3000) * 1_000_000;
        long rest = Named.number(request, "restMs", 0);
        AtomicLong failed = new AtomicLong();
        Queue<String> failures = new ConcurrentLinkedQueue<>();
        AtomicLong newest = new AtomicLong(System.nanoTime());
        AtomicLong pause = new AtomicLong();
        Spans spans = new Spans();
        CountDownLatch ready = new CountDownLatch(threads);
        CountDownLatch go = new CountDownLatch(1);
        CountDownLatch done = new CountDownLatch(threads);
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> {
                Spans own = new Spans();
                try {
                    ready.countDown();
                    go.await();
                    long end = System.nanoTime() + lasting;
                    for (long begun = System.nanoTime(); begun < end; begun = System.nanoTime()) {
                        String words;
                        try {
                            SendStatus status = send.once().getSendStatus();
                            if (status == SendStatus.SEND_OK) {
                                long now = System.nanoTime();
                                own.add(now - begun);
                                pause.accumulateAndGet(now - newest.getAndSet(now), Math::max);
                                continue;
                            }
                            words = status.name();
                        } catch (Exception failure) {
                            words = words(failure);
                        }
                        if (failed.incrementAndGet() <= FAILURES) {
                            failures.add(words);
                        }
                        Thread.sleep(rest);
                    }
                } catch (InterruptedException over) {
                    Thread.currentThread().interrupt();
                } finally {
                    spans.addAll(own);
                    done.countDown();
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        ready.await();
        long begun = System.nanoTime();
        go.countDown();
        done.await();
        long over = System.nanoTime();
        pause.accumulateAndGet(over - newest.get(), Math::max);
        Map<String, Object> all = figures(spans.count() * each, failed.get() * each, over - begun, spans);
        all.put("pauseMs", pause.get() / 1_000_000);
        all.put("failures", new ArrayList<>(failures));
        return all;
    }

    /** What an exception and its causes say, the first line of each. */
    private static String words(Throwable failure) {
        StringBuilder all = new StringBuilder();
        for (Throwable each = failure; each != null; each = each.getCause()) {
            all.append(all.length() == 0 ? "" : "; because of ");
            all.append(String.valueOf(each).split("\n", 2)[0]);
        }
        return all.toString();
    }

    private static Object async(JsonObject request) throws Exception {
        DefaultMQProducer producer = Named.get(request, DefaultMQProducer.class);
        byte[] body = new byte[(int) Named.number(request, "size", 128)];
        String topic = request.get("topic").getAsString();
        int bound = (int) Named.number(request, "inFlight", 256);
        Semaphore places = new Semaphore(bound);
        AtomicLong failed = new AtomicLong();
        Spans spans = new Spans();
        long begun = System.nanoTime();
        long end = begun + Named.number(request, "ms", 3000) * 1_000_000;
        while (System.nanoTime() < end) {
            places.acquire();
            long sent = System.nanoTime();
            producer.send(new Message(topic, "TagA", body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    synchronized (spans) {
                        spans.add(System.nanoTime() - sent);
                    }
                    places.release();
                }

                @Override
                public void onException(Throwable failure) {
                    failed.incrementAndGet();
                    places.release();
                }
            });
        }
        if (!places.tryAcquire(bound, 30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("callbacks did not come within 30 s");
        }
        return figures(spans.count(), failed.get(), System.nanoTime() - begun, spans);
    }

    /** Consumes a backlog of count messages with a group of its own; the clock runs from the first message. */
    private static Object consume(JsonObject request) throws Exception {
        long count = request.get("count").getAsLong();
        AtomicLong got = new AtomicLong();
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = Pushing.open(request);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            first.compareAndSet(0, System.nanoTime());
            if (got.addAndGet(messages.size()) >= count && last.compareAndSet(0, System.nanoTime())) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean all = done.await(Named.number(request, "timeoutMs", 120_000), TimeUnit.MILLISECONDS);
        long end = all ? last.get() : System.nanoTime();
        consumer.shutdown();
        return figures(got.get(), all ? 0 : count - got.get(), end - first.get(), new Spans());
    }

    /** Sends at a steady rate; the latency is from before the send to the listener, by the same clock. */
    private static Object latency(JsonObject request) throws Exception {
        DefaultMQProducer producer = Named.get(request, DefaultMQProducer.class);
        String topic = request.get("topic").getAsString();
        int size = (int) Named.number(request, "size", 128);
        long every = 1_000_000_000L / Named.number(request, "rate", 1000);
        long warm = Named.number(request, "warm", 3000);
        long count = warm + Named.number(request, "count", 3000);
        long run = System.nanoTime();
        Spans spans = new Spans();
        CountDownLatch open = new CountDownLatch((int) count);
        DefaultMQPushConsumer consumer = Pushing.open(named(request, request.get("name").getAsString() + "-listener"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            messages.forEach(message -> {
                ByteBuffer body = ByteBuffer.wrap(message.getBody());
                if (body.getLong() != run) {
                    return;
                }
                long sent = body.getLong();
                if (body.getLong() >= warm) {
                    synchronized (spans) {
                        spans.add(now - sent);
                    }
                }
                open.countDown();
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long begun = System.nanoTime();
        for (long i = 0; i < count; i++) {
            long due = begun + i * every;
            while (System.nanoTime() < due) {
                LockSupport.parkNanos(due - System.nanoTime());
            }
            ByteBuffer body = ByteBuffer.allocate(size).putLong(run).putLong(System.nanoTime()).putLong(i);
            producer.send(new Message(topic, "TagA", body.array()));
        }
        boolean all = open.await(30, TimeUnit.SECONDS);
        long elapsed = System.nanoTime() - begun;
        consumer.shutdown();
        return figures(spans.count(), all ? 0 : open.getCount(), elapsed, spans);
    }

    private static JsonObject named(JsonObject request, String instance) {
        JsonObject copy = request.deepCopy();
        copy.addProperty("instance", instance);
        return copy;
    }

    private static Map<String, Object> figures(long messages, long failed, long elapsedNs, Spans spans) {
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("messages", messages);
        all.put("failed", failed);
        all.put("seconds", elapsedNs / 1e9);
        all.put("rate", messages / (elapsedNs / 1e9));
        all.put("p50Us", spans.percentile(50));
        all.put("p99Us", spans.percentile(99));
        all.put("longestUs", spans.percentile(100));
        return all;
    }

    /** Time spans in nanoseconds; belongs to one thread unless it is guarded. */
    private static final class Spans {
        private long[] values = new long[1 << 16];
        private int size;

        void add(long value) {
            if (size == values.length) {
                values = Arrays.copyOf(values, size * 2);
            }
            values[size++] = value;
        }

        synchronized void addAll(Spans other) {
            for (int i = 0; i < other.size; i++) {
                add(other.values[i]);
            }
        }

        int count() {
            return size;
        }

        double percentile(int percent) {
            if (size == 0) {
                return 0;
            }
            long[] sorted = Arrays.copyOf(values, size);
            Arrays.sort(sorted);
            return sorted[Math.min(size - 1, size * percent / 100)] / 1000.0;
        }
    }
}
