import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's own clients and command-line tools in one warm JVM.
 *
 * A server: one JSON request a line on stdin, one JSON answer a line on stdout. A request with "main" runs
 * the main method of that class with "args", standard input "in" (base64), for at most timeout_ms; the
 * answer has "status", "out" (base64) and "err". Other requests have "do" (consume, group, produce, time)
 * and are what tests/kafka/clients/client.py says; "records" is the answer. One with "error" says what was
 * thrown.
 */
public class KafkaClients {
  static final ObjectMapper JSON =
      new ObjectMapper().configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
  static final PrintStream ANSWERS = System.out;

  /** What a tool does when its process ends: some close their client only then. */
  static final List<Runnable> HOOKS = Collections.synchronizedList(new ArrayList<>());

  static class Exited extends RuntimeException {
    final int status;
    Exited(int status, String message) { super(message); this.status = status; }
  }

  static class Request {
    @JsonProperty("do") public String what;
    public String main, bootstrap, topic, group, compression, protocol;
    public List<String> args;
    public byte[] in = new byte[0];
    public int partition, count;
    public long start, timestamp, timeout_ms, linger_ms;
    public boolean committed, idempotent;
    public List<Rec> records;
  }

  static class Rec {
    public String topic;
    public int partition;
    public long offset, timestamp;
    public byte[] key, value;
    public List<Head> headers = new ArrayList<>();
  }

  static class Head {
    public String key;
    public byte[] value;
  }

  public static void main(String[] arguments) throws Exception {
    Exit.setExitProcedure((status, message) -> { throw new Exited(status, message); });
    Exit.setHaltProcedure((status, message) -> { throw new Exited(status, message); });
    Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      Map<String, Object> answer;
      try {
        Request request = JSON.readValue(line, Request.class);
        answer = request.main != null ? tool(request) : Map.of("records", client(request));
      } catch (Throwable e) {
        StringWriter trace = new StringWriter();
        e.printStackTrace(new PrintWriter(trace));
        answer = Map.of("error", trace.toString());
      }
      ANSWERS.println(JSON.writeValueAsString(answer));
      ANSWERS.flush();
    }
    Runtime.getRuntime().halt(0);
  }

  static Map<String, Object> tool(Request request) throws Exception {
    ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
    PrintStream oldErr = System.err;
    InputStream oldIn = System.in;
    System.setOut(new PrintStream(out, true));
    System.setErr(new PrintStream(err, true));
    System.setIn(new ByteArrayInputStream(request.in));
    HOOKS.clear();
    FutureTask<Integer> run = new FutureTask<>(() -> {
      try {
        Class.forName(request.main).getMethod("main", String[].class)
            .invoke(null, (Object) request.args.toArray(new String[0]));
        return 0;
      } catch (java.lang.reflect.InvocationTargetException e) {
        for (Throwable t = e; t != null; t = t.getCause())
          if (t instanceof Exited exited) {
            if (exited.getMessage() != null) System.err.println(exited.getMessage());
            return exited.status;
          }
        e.getCause().printStackTrace(System.err);
        return 1;
      } finally {
        HOOKS.forEach(Runnable::run);
      }
    });
    Thread thread = new Thread(run, "tool");
    thread.setDaemon(true);
    thread.start();
    int status;
    try {
      status = run.get(request.timeout_ms, TimeUnit.MILLISECONDS);
    } catch (TimeoutException e) {
      for (StackTraceElement at : thread.getStackTrace()) System.err.println("  at " + at);
      System.err.println("still running after " + request.timeout_ms + " ms");
      thread.interrupt();
      thread.join(5000);
      status = -1;
    } finally {
      System.setErr(oldErr);
      System.setIn(oldIn);
    }
    return Map.of("status", status, "out", out.toByteArray(), "err", err.toString(StandardCharsets.UTF_8));
  }

  static List<Rec> client(Request request) throws Exception {
    return switch (request.what) {
      case "consume", "group" -> consume(request);
      case "produce" -> produce(request);
      case "time" -> time(request);
      default -> throw new IllegalArgumentException(request.what);
    };
  }

  static KafkaConsumer<byte[], byte[]> consumer(Request request) {
    Properties keys = new Properties();
    keys.put("bootstrap.servers", request.bootstrap);
    keys.put("isolation.level", request.committed ? "read_committed" : "read_uncommitted");
    keys.put("auto.offset.reset", "earliest");
    keys.put("enable.auto.commit", "false");
    keys.put("default.api.timeout.ms", String.valueOf(request.timeout_ms));
    if (request.group != null) keys.put("group.id", request.group);
    if (request.protocol != null) keys.put("group.protocol", request.protocol);
    return new KafkaConsumer<>(keys, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  static List<Rec> consume(Request request) {
    List<Rec> seen = new ArrayList<>();
    try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
      if (request.what.equals("group")) {
        consumer.subscribe(List.of(request.topic));
      } else {
        TopicPartition partition = new TopicPartition(request.topic, request.partition);
        consumer.assign(List.of(partition));
        consumer.seek(partition, request.start);
      }
      long until = System.nanoTime() + request.timeout_ms * 1_000_000, last = System.nanoTime();
      while (System.nanoTime() < until) {
        for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(request.linger_ms))) {
          seen.add(rec(r));
          last = System.nanoTime();
        }
        if (seen.size() >= request.count && System.nanoTime() - last > request.linger_ms * 1_000_000) break;
      }
      if (request.what.equals("group")) consumer.commitSync();
    }
    return seen;
  }

  static Rec rec(ConsumerRecord<byte[], byte[]> r) {
    Rec rec = new Rec();
    rec.topic = r.topic();
    rec.partition = r.partition();
    rec.offset = r.offset();
    rec.timestamp = r.timestamp();
    rec.key = r.key();
    rec.value = r.value();
    for (Header h : r.headers()) {
      Head head = new Head();
      head.key = h.key();
      head.value = h.value();
      rec.headers.add(head);
    }
    return rec;
  }

  static List<Rec> produce(Request request) throws Exception {
    Properties keys = new Properties();
    keys.put("bootstrap.servers", request.bootstrap);
    keys.put("compression.type", request.compression);
    keys.put("acks", "all");
    keys.put("enable.idempotence", String.valueOf(request.idempotent));
    keys.put("max.block.ms", String.valueOf(request.timeout_ms));
    keys.put("linger.ms", "5");
    keys.put("delivery.timeout.ms", String.valueOf(request.timeout_ms));
    keys.put("request.timeout.ms", String.valueOf(request.timeout_ms - 1000));
    List<Rec> done = new ArrayList<>();
    try (KafkaProducer<byte[], byte[]> producer =
        new KafkaProducer<>(keys, new ByteArraySerializer(), new ByteArraySerializer())) {
      List<Future<RecordMetadata>> sent = new ArrayList<>();
      for (Rec r : request.records) {
        List<Header> headers = new ArrayList<>();
        for (Head head : r.headers) headers.add(new RecordHeader(head.key, head.value));
        sent.add(producer.send(
            new ProducerRecord<>(request.topic, r.partition, r.timestamp, r.key, r.value, headers)));
      }
      for (Future<RecordMetadata> one : sent) {
        RecordMetadata metadata = one.get();
        Rec rec = new Rec();
        rec.partition = metadata.partition();
        rec.offset = metadata.offset();
        done.add(rec);
      }
    }
    return done;
  }

  static List<Rec> time(Request request) {
    try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
      TopicPartition partition = new TopicPartition(request.topic, request.partition);
      OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, request.timestamp)).get(partition);
      Rec rec = new Rec();
      rec.offset = found == null ? -1 : found.offset();
      return List.of(rec);
    }
  }
}
