import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** FetchSpeed TOPIC PARTITIONS RECORDS, then a server a line: reads all, prints ms a line. */
public class FetchSpeed {
    public static void main(String[] args) throws Exception {
        int partitions = Integer.parseInt(args[1]);
        long wanted = Long.parseLong(args[2]);
        var in = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        String server;
        while ((server = in.readLine()) != null) {
            Properties config = new Properties();
            config.put("bootstrap.servers", server);
            config.put("enable.auto.commit", "false");
            config.put("fetch.max.bytes", Integer.toString(64 << 20));
            config.put("max.partition.fetch.bytes", Integer.toString(8 << 20));
            config.put("max.poll.records", "20000");
            config.put("receive.buffer.bytes", "-1");
            var bytes = new ByteArrayDeserializer();
            try (var consumer = new KafkaConsumer<byte[], byte[]>(config, bytes, bytes)) {
                List<TopicPartition> all = new ArrayList<>();
                for (int p = 0; p < partitions; p++) all.add(new TopicPartition(args[0], p));
                long began = System.nanoTime();
                consumer.assign(all);
                consumer.seekToBeginning(all);
                long count = 0;
                while (count < wanted) count += consumer.poll(Duration.ofSeconds(10)).count();
                System.out.println((System.nanoTime() - began) / 1_000_000);
                System.out.flush();
            }
        }
    }
}
