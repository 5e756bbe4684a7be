import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's client for Java, of 0.9 and later, told by lines what to do; parts are separated by tabs.
 * The first line has the settings of all clients, NAME=VALUE each. Then commands:
 *
 *   produce  TOPIC CODEC IDEMPOTENT PARTITION KEY:VALUE...
 *   consume  TOPIC OFFSET COUNT GROUP
 *   join     NAME GROUP TOPIC
 *   assign   NAME TOPIC OFFSET
 *   poll     NAME MS
 *   assigned NAME
 *   commit   NAME
 *   leave    NAME
 *
 * Each is answered by a line: "ok" and what was found, or "error" and the name of its class.
 * Messages are PARTITION:OFFSET:KEY:VALUE; keys and values are in base64, and no key is "-".
 */
public class Commands {
    static final Map<String, Object> settings = new HashMap<>();
    static final Map<String, KafkaConsumer<byte[], byte[]>> members = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String setting : lines.readLine().split("\t")) {
            int end = setting.indexOf('=');
            settings.put(setting.substring(0, end), setting.substring(end + 1));
        }
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<String> answer = new ArrayList<>();
            try {
                List<String> found = done(line.split("\t"));
                answer.add("ok");
                answer.addAll(found);
            } catch (Exception error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                answer.clear();
                answer.add("error");
                answer.add(cause.getClass().getSimpleName());
            }
            System.out.println(String.join("\t", answer));
        }
        System.exit(0);
    }

    static List<String> done(String[] part) throws Exception {
        switch (part[0]) {
            case "produce":
                produce(part);
                return List.of();
            case "consume":
                return consume(part[1], Long.parseLong(part[2]), Integer.parseInt(part[3]), part[4]);
            case "join":
                members.put(part[1], consumer(part[2]));
                members.get(part[1]).subscribe(Arrays.asList(part[3]));
                return List.of();
            case "assign":
                TopicPartition place = new TopicPartition(part[2], 0);
                members.put(part[1], consumer("nobody"));
                members.get(part[1]).assign(Arrays.asList(place));
                members.get(part[1]).seek(place, Long.parseLong(part[3]));
                return List.of();
            case "poll":
                return polled(members.get(part[1]), Long.parseLong(part[2]));
            case "assigned":
                List<String> found = new ArrayList<>();
                for (TopicPartition each : members.get(part[1]).assignment()) {
                    found.add(String.valueOf(each.partition()));
                }
                return found;
            case "commit":
                members.get(part[1]).commitSync();
                return List.of();
            default:
                members.remove(part[1]).close();
                return List.of();
        }
    }

    static void produce(String[] part) throws Exception {
        Properties own = new Properties();
        own.putAll(settings);
        own.put("key.serializer", ByteArraySerializer.class.getName());
        own.put("value.serializer", ByteArraySerializer.class.getName());
        own.put("compression.type", part[2]);
        own.put("enable.idempotence", part[3]);
        own.put("acks", "all");
        own.put("linger.ms", "20");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(own)) {
            List<Future<?>> sent = new ArrayList<>();
            for (String message : Arrays.copyOfRange(part, 5, part.length)) {
                String[] content = message.split(":", -1);
                sent.add(producer.send(new ProducerRecord<>(
                    part[1], Integer.valueOf(part[4]), decoded(content[0]), decoded(content[1]))));
            }
            for (Future<?> each : sent) {
                each.get();
            }
        }
    }

    static List<String> consume(String topic, long offset, int count, String group)
            throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(group)) {
            TopicPartition place = new TopicPartition(topic, 0);
            consumer.assign(Arrays.asList(place));
            consumer.seek(place, offset);
            List<String> found = new ArrayList<>();
            while (found.size() < count) {
                found.addAll(polled(consumer, 1000));
            }
            return found.subList(0, count);
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(String group) {
        Properties own = new Properties();
        own.putAll(settings);
        own.put("key.deserializer", ByteArrayDeserializer.class.getName());
        own.put("value.deserializer", ByteArrayDeserializer.class.getName());
        own.put("group.id", group);
        own.put("enable.auto.commit", "false");
        own.put("auto.offset.reset", "earliest");
        own.put("heartbeat.interval.ms", "100");
        return new KafkaConsumer<>(own);
    }

    /** How to poll has changed: `poll(long)` until 3.9, `poll(Duration)` since 2.0. */
    @SuppressWarnings("unchecked")
    static List<String> polled(KafkaConsumer<byte[], byte[]> consumer, long ms) throws Exception {
        Object records;
        try {
            try {
                Method poll = KafkaConsumer.class.getMethod("poll", Duration.class);
                records = poll.invoke(consumer, Duration.ofMillis(ms));
            } catch (NoSuchMethodException older) {
                records = KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, ms);
            }
        } catch (java.lang.reflect.InvocationTargetException error) {
            throw (Exception) error.getCause();
        }
        List<String> found = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> one : (ConsumerRecords<byte[], byte[]>) records) {
            found.add(String.join(":", String.valueOf(one.partition()), String.valueOf(one.offset()),
                encoded(one.key()), encoded(one.value())));
        }
        return found;
    }

    static byte[] decoded(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }

    static String encoded(byte[] data) {
        return data == null ? "-" : Base64.getEncoder().encodeToString(data);
    }
}
