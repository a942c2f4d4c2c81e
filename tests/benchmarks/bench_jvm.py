"""Record batches in the JVM, without Spark: rows framed and compressed, beside what can't be saved.

    python -m tests.benchmarks.bench_jvm

16-byte keys, batches of 16 KiB (Kafka's batch.size), one thread, CPU time; all by turns. `copy` is
a copy of the plain batches, `codec` the codec alone over the same records, at its default level.
"""

import struct
import time
from collections.abc import Iterable

from sparklog.format.compression import Codec
from sparklog.format.records import BATCH_SIZE, Scratch, encode
from tests import jars
from tests.benchmarks.table import Row, print_rows, sample
from tests.jvm.probe import Probe, pack

BYTES = 2 << 20  # of rows in a round, so that they are nearly in the cache
ROUNDS = 200


def row(probe: Probe, value_bytes: int, codec: Codec) -> Row:
    rows = sample(BYTES // (16 + value_bytes), value_bytes)
    fields = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
    request = pack([codec.name.lower().encode()]) + struct.pack(">ii", BATCH_SIZE, ROUNDS)
    answer = probe.call("write speed", request + pack(part for pair in fields for part in pair))
    size, ours, copy, _, alone = struct.unpack(">5q", answer)
    scratch, python = Scratch(), float("inf")
    for _ in range(10):
        start = time.process_time()
        encode(rows, codec=codec, timestamp_ms_default=0, scratch=scratch)
        python = min(python, time.process_time() - start)
    least, name = (copy, "copy") if codec == Codec.NONE else (alone, "codec")
    return Row(
        f"{value_bytes} B, {codec.name.lower()}",
        f"{size / ours * 1e3:.0f} MB/s, {ours / len(rows):.0f} ns a record",
        least / ours,
        f"{name}: {size / least * 1e3:.0f} MB/s; encode in Python: {size / python / 1e6:.0f} MB/s",
    )


def rows(probe: Probe) -> Iterable[Row]:
    for value_bytes in (100, 1024):
        for codec in Codec:
            yield row(probe, value_bytes, codec)


def main() -> None:
    try:
        probe = Probe()
    except jars.Unavailable as reason:
        print(f"jvm: skipped ({reason})")
        return
    try:
        print_rows("rows into record batches, in the JVM", rows(probe))
    finally:
        probe.close()


if __name__ == "__main__":
    main()
