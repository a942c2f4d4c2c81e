"""Framing, parsing and compressed rates beside aiokafka's and kafka-python's record builders.

    python -m tests.benchmarks.bench_codec [records]

16-byte keys, values of 100 B and 1 KB, batches of 16 KiB (Kafka's batch.size). All candidates
run by turns in one process, and the least CPU time of a few rounds counts, so that other load
on the machine bears on all alike. `codec` is the codec alone over the same batches.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from sparklog.format.batch import HEADER_SIZE
from sparklog.format.compression import Codec, compress
from sparklog.format.records import Decoder, encode
from sparklog.format.rows import Feed, Picked, Rows
from sparklog.format.scan import scan

BATCH_SIZE = 16384
CODECS = {"none": 0, "lz4": 3, "zstd": 4}
TARGETS = {"frame": 20.0, "append none": 20.0}  # times aiokafka


def table(rows: int, value_bytes: int) -> pa.RecordBatch:
    """Random keys; values of words, which compress about threefold."""
    rng = np.random.default_rng(0)
    key = rng.integers(97, 123, rows * 16, np.uint8)
    words = rng.integers(97, 123, (512, 8), np.uint8)
    value = words[rng.integers(0, 512, rows * value_bytes // 8 + 1)].reshape(-1)
    columns = [
        pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), rows, [None, pa.py_buffer(data)])
        for size, data in ((16, key), (value_bytes, value[: rows * value_bytes]))
    ]
    return pa.RecordBatch.from_arrays([c.cast(pa.binary()) for c in columns], ["key", "value"])


def best(candidates: dict[str, Callable[[], Any]], rounds: int = 5) -> dict[str, float]:
    """Least CPU seconds of each, taken by turns (all run in one thread)."""
    least = dict.fromkeys(candidates, float("inf"))
    for _ in range(rounds):
        for name, run in candidates.items():
            start = time.process_time()
            run()
            least[name] = min(least[name], time.process_time() - start)
    return least


def _kafka_python(codec: int, rows: list[tuple[bytes, bytes]]) -> Callable[[], list[bytes]]:
    from kafka.record.default_records import DefaultRecordBatchBuilder

    def run() -> list[bytes]:
        batches = []
        at = 0
        while at < len(rows):
            builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, BATCH_SIZE)
            first = at
            while at < len(rows):
                key, value = rows[at]
                if builder.append(at - first, 1, key, value, []) is None:
                    break
                at += 1
            batches.append(bytes(builder.build()))
        return batches

    return run


def _aiokafka(codec: int, rows: list[tuple[bytes, bytes]]) -> Callable[[], list[bytes]]:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    def run() -> list[bytes]:
        batches = []
        at = 0
        while at < len(rows):
            builder = DefaultRecordBatchBuilder(
                magic=2,
                compression_type=codec,
                is_transactional=0,
                producer_id=-1,
                producer_epoch=-1,
                base_sequence=-1,
                batch_size=BATCH_SIZE,
            )
            first = at
            while at < len(rows):
                key, value = rows[at]
                if builder.append(at - first, 1, key, value, []) is None:
                    break
                at += 1
            batches.append(bytes(builder.build()))
        return batches

    return run


def _aiokafka_read(data: bytes) -> Callable[[], int]:
    from aiokafka.record.memory_records import MemoryRecords

    def run() -> int:
        count = 0
        log = MemoryRecords(data)
        while (batch := log.next_batch()) is not None:
            for record in batch:
                assert record.value is not None
                count += 1
        return count

    return run


def _kafka_python_read(data: bytes) -> Callable[[], int]:
    from kafka.record import MemoryRecords

    def run() -> int:
        count = 0
        log = MemoryRecords(data)
        while (batch := log.next_batch()) is not None:
            for record in batch:
                assert record.value is not None
                count += 1
        return count

    return run


def _kernel(data: pa.RecordBatch) -> Callable[[], Any]:
    """The framing loop by itself: no headers, no CRC, memory that was touched before."""
    ready = Feed([Picked(Rows(data, default_ms=1))])
    out = memoryview(bytearray(ready.bound + 2 * HEADER_SIZE * (ready.bound // BATCH_SIZE + 2)))
    frames = np.empty((len(data), 6), np.int64)

    def run() -> Any:
        ready.rewind(0)
        return ready.frame(out, 0, BATCH_SIZE, 2**31 - 1, frames)

    return run


def _decode(data: bytes) -> Callable[[], int]:
    found = scan(data, path="bench").table

    def run() -> int:
        decoder = Decoder(["key", "value", "offset", "timestamp"])
        decoder.add_many(data, found, path="bench")
        return decoder.finish().num_rows

    return run


def _row(label: str, rows: int, size: int, ours: float, other: dict[str, float]) -> dict[str, Any]:
    made = {"what": label, "M records/s": rows / ours / 1e6, "GB/s": size / ours / 1e9}
    for name, seconds in other.items():
        made[f"x {name}"] = seconds / ours
    return made


def case(rows: int, value_bytes: int, codec_name: str) -> list[dict[str, Any]]:
    """The table's rows for one size and codec."""
    codec = Codec.parse(codec_name)
    data = table(rows, value_bytes)
    pairs = list(zip(data["key"].to_pylist(), data["value"].to_pylist(), strict=True))
    plain = encode(data, codec=Codec.NONE, timestamp_ms_default=1, batch_size=BATCH_SIZE)
    packed = bytes(encode(data, codec=codec, timestamp_ms_default=1, batch_size=BATCH_SIZE).data)
    pieces = [
        plain.data[at + HEADER_SIZE : at + size]
        for at, size in zip(
            plain.batches["position"].tolist(), plain.batches["size"].tolist(), strict=True
        )
    ]
    writers = {
        "sparklog": lambda: encode(
            data, codec=codec, timestamp_ms_default=1, batch_size=BATCH_SIZE
        ),
        "aiokafka": _aiokafka(CODECS[codec_name], pairs),
        "kafka-python": _kafka_python(CODECS[codec_name], pairs),
        "codec alone": lambda: [compress(codec, piece) for piece in pieces],
    }
    if codec == Codec.NONE:
        writers["frame"] = _kernel(data)
        del writers["codec alone"]
    took = best(writers)
    readers = {
        "sparklog": _decode(packed),
        "aiokafka": _aiokafka_read(packed),
        "kafka-python": _kafka_python_read(packed),
    }
    read = best(readers)
    label = f"{value_bytes} B {codec_name}"
    size = len(plain.data)
    made = []
    if codec == Codec.NONE:
        ours = took.pop("frame")
        others = {name: took[name] for name in ("aiokafka", "kafka-python")}
        made.append(_row(f"frame {label}", rows, size, ours, others))
    made.append(_row(f"append {label}", rows, size, took.pop("sparklog"), took))
    made.append(_row(f"read {label}", rows, size, read.pop("sparklog"), read))
    return made


def main(records_count: int = 200_000) -> list[dict[str, Any]]:
    """All rows: what, M records/s, GB/s of plain records, and how many times faster than each."""
    found = []
    for value_bytes in (100, 1024):
        for codec in CODECS:
            found += case(max(1000, records_count * 100 // value_bytes), value_bytes, codec)
    return found


def show(found: list[dict[str, Any]]) -> None:
    names = ["M records/s", "GB/s", "x aiokafka", "x kafka-python", "x codec alone"]
    print(f"{'':22}" + "".join(f"{name:>16}" for name in names))
    for row in found:
        cells = (f"{row[name]:16.2f}" if name in row else f"{'':16}" for name in names)
        print(f"{row['what']:22}" + "".join(cells))


if __name__ == "__main__":
    show(main(*map(int, sys.argv[1:2])))
