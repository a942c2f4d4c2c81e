package sparklog.probe

import sparklog.format.{BatchHeader, Crc32c, Varint}

/** What everything else is made of: varints, CRCs, headers. */
object Primitives extends Operations {
  override def operations: Map[String, Operation] = Map(
    "echo" -> { (in, out) => out.write(in.readAllBytes()) },
    "crc32c" -> { (in, out) =>
      val bytes = in.readAllBytes()
      out.writeInt(Crc32c.of(bytes, 0, bytes.length))
    },
    // (i64 value)*: (bytes as an i32's if it is one else 0, as an i64's, how both read them)
    "varints" -> { (in, out) =>
      val bytes = new Array[Byte](Varint.LongBytesMax)
      while (in.available > 0) {
        val value = in.readLong()
        val end = Varint.put(bytes, 0, value)
        assert(end == Varint.size(value) && end == Varint.sizeAt(bytes, 0, end, end))
        assert(Varint.sizeAt(bytes, 0, end - 1, end) == 0 && Varint.get(bytes, 0, end) == value)
        bytesTo(out, bytes, 0, end)
        if (value.isValidInt) {
          val short = Varint.put(bytes, 0, value.toInt)
          assert(short == Varint.size(value.toInt) && short == end)
          assert(Varint.get(bytes, 0, short) == value)
        }
      }
    },
    // (bytes)*: status, and of a sound one its fields
    "headers" -> { (in, out) =>
      val header = new BatchHeader
      while (in.available > 0) {
        val bytes = bytesFrom(in)
        val status = header.read(bytes, 0, bytes.length)
        out.writeInt(status)
        if (status == BatchHeader.Sound) {
          Seq[Long](
            header.baseOffset,
            header.sizeBytes,
            header.leaderEpoch,
            header.magic,
            header.attributes,
            header.lastOffsetDelta,
            header.baseTimestampMs,
            header.maxTimestampMs,
            header.producerId,
            header.producerEpoch,
            header.baseSequence,
            header.count,
            header.lastOffset
          ).foreach(out.writeLong)
        }
      }
    }
  )
}
