import java.io.IOException;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * Reads a topic with Flink: up to what there is (ADDRESS bounded TOPIC), or until it is told to
 * stop (ADDRESS unbounded TOPIC). Writes "PARTITION OFFSET" for each message.
 */
public final class ReadTopic {
    public static void main(String[] arguments) throws Exception {
        KafkaSourceBuilder<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setTopics(arguments[2])
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setDeserializer(new Place());
        if (arguments[1].equals("bounded")) {
            source.setBounded(OffsetsInitializer.latest());
        }
        Configuration settings = new Configuration();
        settings.setString("jobmanager.bind-host", "127.0.0.1");
        settings.setString("rest.bind-address", "127.0.0.1");
        StreamExecutionEnvironment flink =
            StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        flink.fromSource(source.build(), WatermarkStrategy.noWatermarks(), "topic").print();
        flink.execute();
    }

    /** Where a message is. */
    public static final class Place implements KafkaRecordDeserializationSchema<String> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<String> out)
                throws IOException {
            out.collect(record.partition() + " " + record.offset());
        }

        @Override
        public TypeInformation<String> getProducedType() {
            return Types.STRING;
        }
    }
}
