package sparklog.checkpoint

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets

import sparklog.format.{BatchHeader, Crc32c}

/**
 * A damaged record of the file `key`. `isDeletion`: the record is known to be the deletion of that
 * file.
 */
final case class DamagedRecord(position: Long, key: String, isDeletion: Boolean)

/**
 * Determines which file a damaged record belongs to, by the layout of the record and by its CRC. A
 * single wrong byte of the CRC, or before the end of the key, is found because correcting that byte
 * makes the CRC match. sparklog/checkpoint/log_backed/damaged_records.py implements the same rules
 * in Python.
 */
object DamagedRecord {
  import BatchHeader._

  private val PrefixBytes = 128
  private val Smallest = HeaderBytes + 7

  /**
   * Return the records in the damaged bytes `raw`, which are stored at `position` between two valid
   * batches; None if the records can't be determined. `first`: the first offset of the damaged
   * bytes; `end`: the offset of the next valid batch; `tag`: the tag of the partition.
   */
  def examine(
      raw: Array[Byte], position: Long, first: Long, end: Long, tag: Int)
      : Option[Seq[DamagedRecord]] =
    if (first >= end) None
    else one(raw, position, tag).map(Seq(_)).orElse {
      val parts = framed(raw).map { case (at, until) =>
        one(raw.slice(at, until), position + at, tag)
      }
      if (parts.size > 1 && parts.size <= end - first && parts.forall(_.isDefined)) {
        Some(parts.flatten)
      } else None
    }

  /**
   * Split the bytes by the length fields of the batch headers. The result is meaningless if a
   * length field is damaged.
   */
  private def framed(raw: Array[Byte]): Seq[(Int, Int)] = {
    val buffer = ByteBuffer.wrap(raw)
    val found = Seq.newBuilder[(Int, Int)]
    var at = 0
    while (at < raw.length) {
      val left = raw.length - at
      val size = if (left < LogOverhead) left.toLong
      else buffer.getInt(at + LengthAt).toLong + LogOverhead
      val until = if (size >= Smallest && size <= left) at + size.toInt else raw.length
      found += at -> until
      at = until
    }
    found.result()
  }

  private def one(raw: Array[Byte], position: Long, tag: Int): Option[DamagedRecord] =
    if (raw.length < Smallest) None
    else {
      val batch = ByteBuffer.wrap(raw.clone())
      batch.putInt(LengthAt, raw.length - LogOverhead).put(MagicAt, Magic.toByte)
      val isKnown = correct(batch)
      fields(batch, tag).collect {
        // A deletion has no value that could contain the damage, so its key is trusted only with a
        // CRC.
        case (key, valueLength) if valueLength >= 0 || isKnown =>
          DamagedRecord(position, key, valueLength < 0)
      }
    }

  /**
   * Correct a single wrong byte of the CRC or before the end of the key. Return whether the CRC
   * then matches.
   */
  private def correct(batch: ByteBuffer): Boolean = {
    val actual = crcOf(batch.array, 0, batch.capacity)
    val wrong = actual ^ batch.getInt(CrcAt)
    val ofCrc = (0 until 4).count(n => (wrong >>> 8 * n & 0xff) != 0)
    if (ofCrc <= 1) {
      batch.putInt(CrcAt, actual)
      true
    } else if (endsOtherwise(batch)) true
    else changes(wrong, batch.capacity - AttributesAt) match {
      // If several changes match, the wrong byte is unknown, and a guess could name the wrong file.
      case Seq((at, change)) =>
        batch.put(AttributesAt + at, (batch.get(AttributesAt + at) ^ change).toByte)
        true
      case _ => false
    }
  }

  /** Set the last byte, the number of headers, to 0 if the CRC then matches. */
  private def endsOtherwise(batch: ByteBuffer): Boolean = {
    val last = batch.capacity - 1
    val ending = batch.get(last)
    batch.put(last, 0.toByte)
    val isIt = ending != 0 && crcOf(batch.array, 0, batch.capacity) == batch.getInt(CrcAt)
    if (!isIt) batch.put(last, ending)
    isIt
  }

  /**
   * Return the changes (position, XOR) of a single byte that change the CRC of `size` bytes by
   * `wrong`. Only the first PrefixBytes bytes are tried.
   */
  private def changes(wrong: Int, size: Int): Seq[(Int, Int)] = {
    val last = math.min(size, PrefixBytes) - 1
    val zeros = new Array[Byte](size - last)
    val nothing = Crc32c.of(zeros, 0, zeros.length)
    val bits = Array.tabulate(8) { bit =>
      zeros(0) = (1 << bit).toByte
      Crc32c.of(zeros, 0, zeros.length) ^ nothing
    }
    val found = Seq.newBuilder[(Int, Int)]
    for (at <- last to 0 by -1) {
      // A CRC is linear: the effect of changing a byte is the XOR of the effects of its bits.
      val effects = new Array[Int](256)
      for (change <- 1 until 256) {
        val bit = Integer.numberOfTrailingZeros(change)
        effects(change) = effects(change & (change - 1)) ^ bits(bit)
        if (effects(change) == wrong) found += at -> change
      }
      // A bit one byte further to the front has the same effect followed by one more zero byte.
      for (bit <- 0 until 8) bits(bit) = (bits(bit) >>> 8) ^ steps(bits(bit) & 0xff)
    }
    found.result()
  }

  private val steps: Array[Int] = Array.tabulate(256) { byte =>
    (0 until 8).foldLeft(byte)((crc, _) => (crc >>> 1) ^ (if ((crc & 1) != 0) 0x82f63b78 else 0))
  }

  /**
   * Return the key and the length of the value if the bytes have the layout of a batch that a
   * checkpoint manager writes, else None.
   */
  private def fields(batch: ByteBuffer, tag: Int): Option[(String, Int)] =
    try {
      val plain = batch.getShort(AttributesAt) == 0 && batch.getInt(LastOffsetDeltaAt) == 0 &&
        batch.getLong(BaseTimestampAt) == batch.getLong(MaxTimestampAt) &&
        batch.getLong(ProducerIdAt) == -1 && batch.getShort(ProducerEpochAt) == -1 &&
        Seq(RecordBatch.NoTag, tag).contains(batch.getInt(BaseSequenceAt)) &&
        batch.getInt(CountAt) == 1
      batch.position(HeaderBytes)
      val bodyFits = RecordBatch.getVarint(batch) == batch.remaining
      val deltas = Seq.fill(3)(batch.get()).forall(_ == 0)
      val key = RecordBatch.getKey(batch)
      val valueLength = RecordBatch.getVarint(batch)
      val fits = valueLength >= -1 && batch.remaining == math.max(0, valueLength) + 1
      val isWhole = plain && bodyFits && deltas && key.nonEmpty && fits
      if (isWhole && batch.get(batch.capacity - 1) == 0) {
        val text = StandardCharsets.UTF_8.newDecoder.decode(ByteBuffer.wrap(key)).toString
        Some(text -> valueLength.toInt)
      } else None
    } catch {
      case _: IOException | _: java.nio.BufferUnderflowException => None
    }
}
