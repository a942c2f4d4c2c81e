import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;
import java.util.function.Supplier;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.server.log.remote.metadata.storage.RemotePartitionMetadataStore;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.*;
import org.apache.kafka.server.util.*;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.*;

/**
 * What Kafka 4.1's own storage code makes of a partition directory. It works on a copy.
 *
 * A server: one JSON request a line on stdin, one JSON answer a line on stdout. Requests have "cmd":
 *   open   dir, clean, records?, config?, log_start?, recovery_point?, now?: load, walk, validate, close
 *   clean  dir, now, first_dirty, records?, config?: one pass of the log cleaner, then walk
 *   time   dir, times, config?: look-up by timestamp
 *   dump   args: kafka-dump-log
 *   config config: LogConfig.validate, and the values it understands
 *   fill   dir, records, keys, value_bytes, codec, config?: a new keyed log, batches of 500
 *   metadata values: what Kafka's serde reads in values of __remote_log_metadata, the bytes that it
 *          writes of that, and the segments that its store lists once it was told all of them
 *   bench_open | bench_clean   dir, config?: seconds of an unclean recovery | of one cleaning pass
 * An answer with "error" says what was thrown.
 */
public class LogOracle {
  static final ObjectMapper JSON = new ObjectMapper();

  /** What kafka-dump-log throws instead of ending this process. */
  static class Exited extends RuntimeException {
    Exited(int status, String message) { super("exit " + status + (message == null ? "" : ": " + message)); }
  }

  /** A clock that stands where the request says. */
  static class FixedTime implements Time {
    final long now;
    FixedTime(long now) { this.now = now; }
    public long milliseconds() { return now; }
    public long nanoseconds() { return System.nanoTime(); }
    public void sleep(long ms) {}
    public void waitObject(Object o, Supplier<Boolean> condition, long deadline) {}
    public org.apache.kafka.common.utils.Timer timer(long ms) { return Time.SYSTEM.timer(ms); }
  }

  /** A loaded log with all that must be closed after it. */
  static class Loaded implements AutoCloseable {
    final KafkaScheduler scheduler = new KafkaScheduler(1);
    final BrokerTopicStats stats = new BrokerTopicStats();
    final UnifiedLog log;
    private boolean closed;

    Loaded(File dir, boolean clean, Map<String, Object> request, Time time) throws Exception {
      scheduler.startup();
      try {
        log = UnifiedLog.create(dir, new LogConfig(config(request)), number(request, "log_start", 0),
            number(request, "recovery_point", 0), scheduler, stats, time, 60000,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600000,
            new LogDirFailureChannel(10), clean, Optional.empty());
      } catch (Throwable e) {
        scheduler.shutdown();
        stats.close();
        throw e;
      }
      log.maybeIncrementHighWatermark(log.logEndOffsetMetadata());
    }

    public void close() throws Exception {
      if (closed) return;
      closed = true;
      try { log.close(); log.removeLogMetrics(); } finally { scheduler.shutdown(); stats.close(); }
    }
  }

  static Properties config(Map<String, Object> request) {
    Properties p = new Properties();
    Object given = request.get("config");
    if (given != null) ((Map<?, ?>) given).forEach((k, v) -> p.put(k, String.valueOf(v)));
    return p;
  }

  static long number(Map<String, Object> request, String name, long otherwise) {
    Object value = request.get(name);
    return value == null ? otherwise : ((Number) value).longValue();
  }

  static File copy(File source) throws IOException {
    if (source.listFiles() == null) throw new NoSuchFileException(source.toString());
    File copy = new File(Files.createTempDirectory("sparklog-oracle").toFile(), source.getName());
    copy.mkdirs();
    for (File f : source.listFiles())
      Files.copy(f.toPath(), copy.toPath().resolve(f.getName()), StandardCopyOption.COPY_ATTRIBUTES);
    return copy;
  }

  static Map<String, String> digests(File dir) throws Exception {
    Map<String, String> all = new TreeMap<>();
    for (File f : dir.listFiles()) {
      MessageDigest md = MessageDigest.getInstance("MD5");
      try (InputStream in = new FileInputStream(f)) {
        byte[] buffer = new byte[1 << 16];
        for (int n; (n = in.read(buffer)) > 0; ) md.update(buffer, 0, n);
      }
      all.put(f.getName(), f.length() + " " + HexFormat.of().formatHex(md.digest()));
    }
    return all;
  }

  static Object bytes(ByteBuffer buffer) {
    if (buffer == null) return null;
    byte[] raw = new byte[buffer.remaining()];
    buffer.duplicate().get(raw);
    return Base64.getEncoder().encodeToString(raw);
  }

  static Object record(Record r) {
    List<Object> headers = new ArrayList<>();
    for (Header h : r.headers())
      headers.add(Arrays.asList(h.key(), bytes(h.value() == null ? null : ByteBuffer.wrap(h.value()))));
    return Arrays.asList(r.offset(), r.timestamp(), bytes(r.key()), bytes(r.value()), headers);
  }

  static Map<String, Object> batch(long segment, FileLogInputStream.FileChannelRecordBatch x) {
    Map<String, Object> m = new LinkedHashMap<>();
    m.put("segment", segment);
    m.put("position", x.position());
    m.put("size", x.sizeInBytes());
    m.put("magic", x.magic());
    m.put("base", x.baseOffset());
    m.put("last", x.lastOffset());
    m.put("count", x.countOrNull());
    m.put("codec", x.compressionType().name);
    m.put("timestamp_type", x.timestampType().name);
    m.put("max_timestamp", x.maxTimestamp());
    m.put("horizon", x.deleteHorizonMs().isPresent() ? x.deleteHorizonMs().getAsLong() : null);
    m.put("leader_epoch", x.partitionLeaderEpoch());
    m.put("producer_id", x.producerId());
    m.put("producer_epoch", x.producerEpoch());
    m.put("base_sequence", x.baseSequence());
    m.put("last_sequence", x.lastSequence());
    m.put("transactional", x.isTransactional());
    m.put("control", x.isControlBatch());
    return m;
  }

  /** Walks and validates every batch and record. */
  static Map<String, Object> walk(UnifiedLog log, boolean withRecords) throws Exception {
    List<Object> segments = new ArrayList<>(), batches = new ArrayList<>(), records = new ArrayList<>();
    long count = 0;
    for (LogSegment segment : log.logSegments()) {
      segments.add(segment.baseOffset());
      for (FileLogInputStream.FileChannelRecordBatch x : segment.log().batches()) {
        x.ensureValid();
        batches.add(batch(segment.baseOffset(), x));
        for (Record r : x) {
          r.ensureValid();
          count++;
          if (withRecords) records.add(record(r));
        }
      }
    }
    Map<String, Object> m = new LinkedHashMap<>();
    m.put("start", log.logStartOffset());
    m.put("end", log.logEndOffset());
    m.put("lso", log.lastStableOffset());
    m.put("size", log.size());
    m.put("segments", segments);
    m.put("batches", batches);
    m.put("count", count);
    m.put("records", records);
    List<Object> epochs = new ArrayList<>();
    for (EpochEntry e : log.leaderEpochCache().epochEntries()) epochs.add(Arrays.asList(e.epoch, e.startOffset));
    m.put("epochs", epochs);
    m.put("producers", producers(log));
    List<Object> aborted = new ArrayList<>();
    for (AbortedTxn t : log.collectAbortedTransactions(log.logStartOffset(), log.logEndOffset()))
      aborted.add(Arrays.asList(t.producerId(), t.firstOffset(), t.lastOffset(), t.lastStableOffset()));
    m.put("aborted", aborted);
    return m;
  }

  static List<Object> producers(UnifiedLog log) {
    List<Object> all = new ArrayList<>();
    new TreeMap<>(log.producerStateManager().activeProducers()).forEach((id, p) -> {
      Map<String, Object> m = new LinkedHashMap<>();
      m.put("id", id);
      m.put("epoch", p.producerEpoch());
      m.put("first_sequence", p.firstSeq());
      m.put("last_sequence", p.lastSeq());
      m.put("first_offset", p.firstDataOffset());
      m.put("last_offset", p.lastDataOffset());
      m.put("batches", p.batchMetadata().size());
      m.put("coordinator_epoch", p.coordinatorEpoch());
      m.put("last_timestamp", p.lastTimestamp());
      m.put("txn_first_offset",
          p.currentTxnFirstOffset().isPresent() ? p.currentTxnFirstOffset().getAsLong() : null);
      all.add(m);
    });
    return all;
  }

  static Map<String, Object> open(File dir, Map<String, Object> request) throws Exception {
    Map<String, String> before = digests(dir);
    Map<String, Object> answer;
    Time time = request.get("now") == null ? Time.SYSTEM : new FixedTime(number(request, "now", 0));
    try (Loaded l = new Loaded(dir, Boolean.TRUE.equals(request.get("clean")), request, time)) {
      answer = walk(l.log, Boolean.TRUE.equals(request.get("records")));
    }
    List<String> changed = new ArrayList<>(), created = new ArrayList<>();
    digests(dir).forEach((name, digest) -> {
      String old = before.remove(name);
      if (old == null) created.add(name);
      else if (!old.equals(digest)) changed.add(name);
    });
    answer.put("changed", changed);
    answer.put("created", created);
    answer.put("removed", new ArrayList<>(before.keySet()));
    return answer;
  }

  static Cleaner cleaner(Time time) throws Exception {
    Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "x", "y", time);
    return new Cleaner(0, new SkimpyOffsetMap(64 << 20), 1 << 19, 1 << 26, 0.9, throttler, time, tp -> {});
  }

  static Map<String, Object> clean(File dir, Map<String, Object> request) throws Exception {
    Time time = new FixedTime(number(request, "now", System.currentTimeMillis()));
    try (Loaded l = new Loaded(dir, true, request, time)) {
      LogToClean work = new LogToClean(
          l.log, number(request, "first_dirty", 0), l.log.activeSegment().baseOffset(), false);
      long nextDirty = cleaner(time).clean(work).getKey();
      Map<String, Object> answer = walk(l.log, !Boolean.FALSE.equals(request.get("records")));
      answer.put("next_dirty", nextDirty);
      return answer;
    }
  }

  /** Retention after a clean start; `cleaning`: the cleaner runs before it, in the same process. */
  static Map<String, Object> retain(File dir, Map<String, Object> request) throws Exception {
    Time time = new FixedTime(number(request, "now", System.currentTimeMillis()));
    try (Loaded l = new Loaded(dir, true, request, time)) {
      if (Boolean.TRUE.equals(request.get("cleaning")))
        cleaner(time).clean(new LogToClean(l.log, 0, l.log.activeSegment().baseOffset(), false));
      l.log.deleteOldSegments();
      return walk(l.log, false);
    }
  }

  static Map<String, Object> time(File dir, Map<String, Object> request) throws Exception {
    List<Object> found = new ArrayList<>();
    try (Loaded l = new Loaded(dir, true, request, Time.SYSTEM)) {
      for (Object t : (List<?>) request.get("times")) {
        var hit = l.log.fetchOffsetByTimestamp(((Number) t).longValue(), Optional.empty())
            .timestampAndOffsetOpt();
        found.add(hit.isPresent() ? Arrays.asList(hit.get().offset, hit.get().timestamp) : null);
      }
    }
    return Map.of("found", found);
  }

  static Map<String, Object> dump(Map<String, Object> request, ByteArrayOutputStream out,
      ByteArrayOutputStream err) throws Exception {
    out.reset();
    err.reset();
    Integer status = null;
    try {
      kafka.tools.DumpLogSegments.main(((List<?>) request.get("args")).toArray(new String[0]));
    } catch (Exited e) {
      err.write(e.getMessage().getBytes(StandardCharsets.UTF_8));
      status = 1;
    }
    scala.Console.out().flush();
    scala.Console.err().flush();
    Map<String, Object> m = new LinkedHashMap<>();
    m.put("out", out.toString(StandardCharsets.UTF_8));
    m.put("err", err.toString(StandardCharsets.UTF_8));
    m.put("status", status == null ? 0 : status);
    return m;
  }

  static Map<String, Object> checkConfig(Map<String, Object> request) {
    Properties p = config(request);
    LogConfig.validate(p);
    Map<String, Object> values = new TreeMap<>();
    new LogConfig(p).values().forEach((k, v) -> values.put(k, v));
    return Map.of("values", values);
  }

  static String id(org.apache.kafka.common.Uuid id) { return id.toString(); }

  static Map<String, Object> metadata(RemoteLogMetadata found) {
    Map<String, Object> m = new LinkedHashMap<>();
    TopicIdPartition partition = found.topicIdPartition();
    m.put("topic", partition.topic());
    m.put("topic_id", id(partition.topicId()));
    m.put("partition", partition.partition());
    m.put("broker", found.brokerId());
    m.put("time_ms", found.eventTimestampMs());
    if (found instanceof RemoteLogSegmentMetadata x) {
      m.put("id", id(x.remoteLogSegmentId().id()));
      m.put("base", x.startOffset());
      m.put("end", x.endOffset() + 1);
      m.put("max_timestamp", x.maxTimestampMs());
      m.put("size", x.segmentSizeInBytes());
      List<Object> epochs = new ArrayList<>();
      x.segmentLeaderEpochs().forEach((epoch, offset) -> epochs.add(List.of(epoch, offset)));
      m.put("epochs", epochs);
      m.put("custom", bytes(x.customMetadata().map(c -> ByteBuffer.wrap(c.value())).orElse(null)));
      m.put("state", x.state().id());
      m.put("has_txn_index", !x.isTxnIdxEmpty());
    } else if (found instanceof RemoteLogSegmentMetadataUpdate x) {
      m.put("id", id(x.remoteLogSegmentId().id()));
      m.put("custom", bytes(x.customMetadata().map(c -> ByteBuffer.wrap(c.value())).orElse(null)));
      m.put("state", x.state().id());
    } else {
      m.put("state", ((RemotePartitionDeleteMetadata) found).state().id());
    }
    return m;
  }

  static Map<String, Object> metadata(Map<String, Object> request) throws Exception {
    RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
    List<Object> read = new ArrayList<>(), written = new ArrayList<>(), listed = new ArrayList<>();
    Set<TopicIdPartition> partitions = new LinkedHashSet<>();
    try (RemotePartitionMetadataStore store = new RemotePartitionMetadataStore()) {
      for (Object value : (List<?>) request.get("values")) {
        RemoteLogMetadata found = serde.deserialize(Base64.getDecoder().decode((String) value));
        read.add(metadata(found));
        written.add(Base64.getEncoder().encodeToString(serde.serialize(found)));
        if (partitions.add(found.topicIdPartition())) {
          store.maybeLoadPartition(found.topicIdPartition());
          store.markInitialized(found.topicIdPartition());
        }
        store.handleRemoteLogMetadata(found);
      }
      var list = RemotePartitionMetadataStore.class
          .getDeclaredMethod("listRemoteLogSegments", TopicIdPartition.class);
      list.setAccessible(true);
      for (TopicIdPartition partition : partitions)
        try {
          ((Iterator<?>) list.invoke(store, partition))
              .forEachRemaining(x -> listed.add(metadata((RemoteLogMetadata) x)));
        } catch (java.lang.reflect.InvocationTargetException gone) {
          if (!(gone.getCause() instanceof RemoteResourceNotFoundException)) throw gone;
        }
    }
    return Map.of("read", read, "written", written, "listed", listed);
  }

  static Map<String, Object> fill(File dir, Map<String, Object> request) throws Exception {
    dir.mkdirs();
    Random random = new Random(1);
    int size = (int) number(request, "value_bytes", 100), keys = (int) number(request, "keys", 1000);
    Compression codec =
        Compression.of(CompressionType.forName(String.valueOf(request.get("codec")))).build();
    byte[] noise = new byte[size * 2];
    random.nextBytes(noise);
    try (Loaded l = new Loaded(dir, true, request, Time.SYSTEM)) {
      for (long i = 0; i < number(request, "records", 0); i += 500) {
        SimpleRecord[] records = new SimpleRecord[500];
        for (int j = 0; j < 500; j++) {
          byte[] value = new byte[size], key = String.format("key-%012d", random.nextInt(keys)).getBytes();
          System.arraycopy(noise, random.nextInt(size), value, 0, size / 2);
          records[j] = new SimpleRecord(1700000000000L + i + j, key, value);
        }
        l.log.appendAsLeader(MemoryRecords.withRecords(RecordBatch.MAGIC_VALUE_V2, 0L, codec,
            TimestampType.CREATE_TIME, -1L, (short) -1, -1, -1, false, records), 0);
      }
      return Map.of("segments", l.log.numberOfSegments(), "bytes", l.log.size(), "end", l.log.logEndOffset());
    }
  }

  static Map<String, Object> bench(File dir, Map<String, Object> request, boolean cleaning)
      throws Exception {
    long start = System.nanoTime();
    try (Loaded l = new Loaded(dir, cleaning, request, Time.SYSTEM)) {
      long bytes = l.log.size();
      if (cleaning) {
        start = System.nanoTime();
        cleaner(Time.SYSTEM).clean(new LogToClean(l.log, 0, l.log.activeSegment().baseOffset(), false));
      }
      double seconds = (System.nanoTime() - start) / 1e9;
      return Map.of("seconds", seconds, "bytes", bytes, "bytes_after", l.log.size(), "end", l.log.logEndOffset());
    }
  }

  static Map<String, Object> onCopy(String cmd, Map<String, Object> request) throws Exception {
    File copy = copy(new File((String) request.get("dir")));
    try {
      switch (cmd) {
        case "open": return open(copy, request);
        case "clean": return clean(copy, request);
        case "time": return time(copy, request);
        case "retain": return retain(copy, request);
        case "bench_open": return bench(copy, request, false);
        case "bench_clean": return bench(copy, request, true);
        default: throw new IllegalArgumentException("unknown command " + cmd);
      }
    } finally {
      Utils.delete(copy.getParentFile());
    }
  }

  @SuppressWarnings("unchecked")
  public static void main(String[] args) throws Exception {
    PrintStream answers = System.out;
    ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
    System.setOut(new PrintStream(out, true)); // before Scala's Console keeps it
    System.setErr(new PrintStream(err, true));
    Exit.setExitProcedure((status, message) -> { throw new Exited(status, message); });
    Exit.setHaltProcedure((status, message) -> { throw new Exited(status, message); });
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      Map<String, Object> answer;
      try {
        Map<String, Object> request = JSON.readValue(line, Map.class);
        String cmd = (String) request.get("cmd");
        switch (cmd) {
          case "dump": answer = dump(request, out, err); break;
          case "config": answer = checkConfig(request); break;
          case "metadata": answer = metadata(request); break;
          case "fill": answer = fill(new File((String) request.get("dir")), request); break;
          default: answer = onCopy(cmd, request);
        }
      } catch (Throwable e) {
        answer = Map.of("error", e.toString());
      }
      answers.println(JSON.writeValueAsString(answer));
      answers.flush();
      out.reset();
      err.reset();
    }
    Runtime.getRuntime().halt(0);
  }
}
