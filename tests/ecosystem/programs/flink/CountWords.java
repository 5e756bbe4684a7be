import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Counts words with Flink: those with a time from START_MS on and before END_MS, and ends (ADDRESS
 * range START_MS END_MS), or all until it is stopped (ADDRESS stream FOLDER_OF_CHECKPOINTS
 * [CHECKPOINT], both as file: addresses).
 */
public final class CountWords {
    public static void main(String[] arguments) throws Exception {
        KafkaSourceBuilder<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setGroupId("counting")
            .setTopics("words")
            .setValueOnlyDeserializer(new SimpleStringSchema());
        Configuration settings = new Configuration();
        settings.setString("jobmanager.bind-host", "127.0.0.1");
        settings.setString("rest.bind-address", "127.0.0.1");
        if (arguments[1].equals("range")) {
            source.setStartingOffsets(OffsetsInitializer.timestamp(Long.parseLong(arguments[2])))
                .setBounded(OffsetsInitializer.timestamp(Long.parseLong(arguments[3])));
        } else {
            source.setStartingOffsets(OffsetsInitializer.earliest());
            settings.setString("execution.checkpointing.interval", "500 ms");
            settings.setString("execution.checkpointing.dir", arguments[2]);
            settings.setString(
                "execution.checkpointing.externalized-checkpoint-retention",
                "RETAIN_ON_CANCELLATION");
            if (arguments.length > 3) {
                settings.setString("execution.state-recovery.path", arguments[3]);
            }
        }
        StreamExecutionEnvironment flink =
            StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
            .setRecordSerializer(CountWords::message)
            .build();
        flink.fromSource(source.build(), WatermarkStrategy.noWatermarks(), "words").uid("words")
            .keyBy(word -> word, Types.STRING)
            .process(new Count()).uid("counted")
            .sinkTo(sink).uid("counts");
        flink.execute();
    }

    private static ProducerRecord<byte[], byte[]> message(
            String counted, KafkaRecordSerializationSchema.KafkaSinkContext context, Long time) {
        String[] parts = counted.split(" ");
        return new ProducerRecord<>("counts", parts[0].getBytes(), parts[1].getBytes());
    }

    /** The word and how often it was there. */
    public static final class Count extends KeyedProcessFunction<String, String, String> {
        private transient ValueState<Long> seen;

        @Override
        public void open(OpenContext context) {
            seen = getRuntimeContext().getState(new ValueStateDescriptor<>("seen", Types.LONG));
        }

        @Override
        public void processElement(String word, Context context, Collector<String> out)
                throws Exception {
            Long before = seen.value();
            long now = before == null ? 1 : before + 1;
            seen.update(now);
            out.collect(word + " " + now);
        }
    }
}
