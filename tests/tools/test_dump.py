"""Line for line what kafka-dump-log prints: of a broker's files, and of logs of our own."""

import gzip
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError
from sparklog.format.compression import Codec
from sparklog.format.records import encode
from sparklog.log.topic_names import new_topic_id
from sparklog.logdir.home import commits_of
from sparklog.tiered.remote_log_metadata.records import (
    PartitionDeleteRecord,
    PartitionDeleteState,
    SegmentRecord,
    UpdateRecord,
    to_bytes,
)
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState
from sparklog.tools.dump.dump_log import Dump, DumpOptions
from sparklog.tools.dump.text import INTEGER, LONG, STRING, java_text, scala_order
from tests import paths
from tests.format.control_batches import encode_control
from tests.format.data import NOW, rows
from tests.format.test_legacy import message, wrapper
from tests.oracle import Oracle
from tests.oracle.random_logs import TOPIC, Writer, config, opened
from tests.tools.dumps import assert_same, files_of, ours

GOLDEN = paths.GOLDEN / "kafka-4.1"
PRINTED = sorted((GOLDEN / "dump").iterdir())
STYLES: list[dict[str, Any]] = [
    {},
    {"deep_iteration": True},
    {"print_data_log": True},
    {"print_data_log": True, "skip_record_metadata": True},
    {"deep_iteration": True, "skip_record_metadata": True},
    {"verify_index_only": True},
    {"index_sanity_check": True},
    {"print_data_log": True, "max_bytes": 700},
    {"max_bytes": 0},
    {"max_message_size": 150},
    {"value_decoder": LONG, "print_data_log": True},
    {"key_decoder": INTEGER, "print_data_log": True},
]
NAME = "00000000000000000100.log"


@pytest.mark.parametrize("printed", PRINTED, ids=lambda path: path.name)
def test_of_a_brokers_files(printed: Path) -> None:
    raw = printed.read_bytes()
    text = gzip.decompress(raw).decode() if printed.suffix == ".gz" else raw.decode()
    partition, _, name = re.sub(r"\.txt(\.gz)?$", "", printed.name).partition("_")
    path = GOLDEN / "logdir" / partition / name
    out, err, failure = ours([path], print_data_log=name.endswith(".log"))
    assert failure is None
    # It ran in the log dir; and compaction leaves gaps, of which it told the terminal.
    assert out.splitlines()[1:] == text.splitlines()[1:]
    assert out.startswith(f"Dumping {path}\n")
    assert bool(err) == (name.endswith("0.log") and partition == "compacted-0")


@pytest.mark.parametrize("partition", ["txn-0", "compacted-0", "trimmed-0", "appendtime-0"])
def test_of_whole_partitions(partition: str, oracle: Oracle) -> None:
    files = files_of(GOLDEN / "logdir" / partition)
    for style in STYLES[:7]:
        assert assert_same(oracle, files, **style)


def made(path: Path, seed: int) -> list[Path]:
    """A log with all that there is: see random_logs."""
    rng, clock = random.Random(seed), ManualClock()
    with opened(path, clock) as log:
        log.create_topic(TOPIC, config=config(rng))
        Writer(commits_of(log), clock, rng).write(2)
    return files_of(path / f"{TOPIC}-0")


SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40)]


@pytest.mark.parametrize("seed", [1, 2, *SLOW])
def test_of_our_own(seed: int, tmp_path: Path, oracle: Oracle) -> None:
    files = made(tmp_path / "log", seed)
    for style in STYLES:
        assert_same(oracle, files, **style)


def log_of(tmp_path: Path, *batches: bytes) -> Path:
    path = tmp_path / NAME
    path.write_bytes(b"".join(batches))
    return path


def batch(*made: tuple[Any, ...], codec: Codec = Codec.NONE, **more: Any) -> bytes:
    given = {"base_offset": 100, **more}
    return bytes(encode(rows(*made), codec=codec, timestamp_ms_default=NOW, **given).data)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec(codec: Codec, tmp_path: Path, oracle: Oracle) -> None:
    several = [
        (NOW, b"k", b"v" * 300, [{"key": "a", "value": b"1"}, {"key": "", "value": None}]),
        (NOW - 5, None, None),
        (-1, b"", b""),
        (2**53, "Zürich".encode(), "東京 \n\r\t|".encode()),
    ]
    path = log_of(
        tmp_path,
        batch(*several, codec=codec),
        batch(*several, codec=codec, base_offset=104, producer=(7, 1, 2**31 - 3),
              transactional=True),
        encode_control(0, base_offset=108, timestamp=NOW, producer_id=7, producer_epoch=1,
                       coordinator_epoch=3),
        batch(*several, codec=codec, base_offset=109, log_append_time=NOW + 9),
    )  # fmt: skip
    for style in STYLES[:5]:
        assert assert_same(oracle, [path], **style)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_messages(magic: int, codec: Codec, tmp_path: Path, oracle: Oracle) -> None:
    first = 100 if magic == 0 else 0
    inner = [
        message(first + n, b"k%d" % n if n else None, b"v" * n or None, magic=magic, time=NOW - n)
        for n in range(3)
    ]
    damaged = bytearray(message(103, b"k", b"v", magic=magic, time=NOW))
    damaged[-1] ^= 1
    sets = [wrapper(102, b"".join(inner), codec, magic=magic, time=NOW)]
    if codec == Codec.NONE:
        sets = [message(100 + n, b"k", b"v", magic=magic, time=n) for n in range(3)]
    elif magic == 1:
        sets.append(
            wrapper(106, b"".join(inner), codec, magic=1, attributes=8, time=NOW + 5)
        )
    path = log_of(tmp_path, *sets, bytes(damaged), batch((NOW, b"k", b"v"), base_offset=107))
    for style in STYLES[:5]:
        assert "isvalid: false" in assert_same(oracle, [path], **style)


def test_bytes_that_are_no_text(tmp_path: Path, oracle: Oracle) -> None:
    rng = random.Random(7)
    pool = [0x41, 0x80, 0xA0, 0xBF, 0xC0, 0xC3, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF]
    values = [bytes(rng.choices(pool, k=rng.randint(1, 6))) for _ in range(2000)]
    path = log_of(tmp_path, batch(*((NOW, value, value) for value in values)))
    assert "\ufffd" in assert_same(oracle, [path], print_data_log=True)
    assert java_text(b"\xed\xa0\x80") == "\ufffd"  # Python alone would say three


@pytest.mark.parametrize(("decoder", "width"), [(LONG, 8), (INTEGER, 4)])
def test_number_decoders(decoder: str, width: int, tmp_path: Path, oracle: Oracle) -> None:
    numbers = [(-1).to_bytes(width, "big", signed=True), b"\x01" * (width + 3), b"\x7f" * width]
    path = log_of(tmp_path, batch(*((NOW, None, number) for number in numbers)))
    out = assert_same(oracle, [path], value_decoder=decoder, print_data_log=True)
    assert " payload: -1\n" in out
    path = log_of(tmp_path, batch((NOW, b"k", numbers[0]), (NOW, b"k", b"1")))
    assert not assert_same(oracle, [path], value_decoder=decoder, print_data_log=True)
    out, _, failure = ours([path], value_decoder=decoder, print_data_log=True)
    assert out.endswith(" payload: -1\n")  # as far as it goes
    assert f"the record at offset 101: {decoder.rpartition('.')[2]} needs {width}" in str(failure)


def test_remote_log_metadata(tmp_path: Path, oracle: Oracle) -> None:
    topic: dict[str, Any] = {"topic": "t", "topic_id": new_topic_id(), "partition": 3}
    segment = RemoteSegment(
        **topic, id=new_topic_id(), base=5, end=9, max_timestamp=NOW, size=170,
        epochs=((0, 5), (3, 7)), state=SegmentState.COPY_STARTED, time_ms=NOW, has_txn_index=True,
    )  # fmt: skip
    values: list[bytes | None] = [None]
    for custom in (None, b"abc"):
        values.append(to_bytes(SegmentRecord(segment=segment, custom=custom, broker=2)))
        for state in SegmentState:
            update = UpdateRecord(**topic, id=segment.id, state=state, time_ms=NOW, custom=custom)
            values.append(to_bytes(update))
    for deletion in PartitionDeleteState:
        values.append(to_bytes(PartitionDeleteRecord(**topic, state=deletion, time_ms=NOW)))
    path = log_of(tmp_path, batch(*((NOW, b"k", value) for value in values)))
    out = assert_same(oracle, [path], remote_log_metadata_decoder=True, print_data_log=True)
    assert out.count("RemoteLogSegmentMetadata{") == 2
    path = log_of(tmp_path, batch((NOW, None, b"\x01\x07\x00")))
    out, _, _ = ours([path], remote_log_metadata_decoder=True, print_data_log=True)
    assert " payload: Error at offset 100, skipping. " in out


@pytest.mark.parametrize("name", ["org.apache.kafka.tools.api.DefaultDecoder", "my.Decoder", ""])
def test_decoders_that_cant_be_had(name: str, tmp_path: Path) -> None:
    path = log_of(tmp_path, batch((NOW, b"k", b"v")))
    _, _, failure = ours([path], value_decoder=name, print_data_log=True)
    assert isinstance(failure, InvalidRequestError)
    assert f"use {STRING}, {LONG} or {INTEGER}" in str(failure)


def test_a_batch_larger_than_a_window(tmp_path: Path, oracle: Oracle) -> None:
    large = batch((NOW, b"k", b"x" * 3_000_000), (NOW, b"k", b"y"), max_message_bytes=1 << 23,
                  batch_size=1 << 23)  # fmt: skip
    path = log_of(tmp_path, large, batch((NOW, b"k", b"v"), base_offset=102))
    assert assert_same(oracle, [path], print_data_log=True).count("\n| offset") == 3
    assert "3 " not in assert_same(oracle, [path], max_bytes=1000)


def test_names_of_files(tmp_path: Path, oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = batch((NOW, b"k", b"v"))
    for name in ("5.log", "+7.log", "-7.log", "5.log.deleted", "x.log", "none", "7.log.log"):
        (tmp_path / name).write_bytes(raw)
        assert_same(oracle, [tmp_path / name])
    assert_same(oracle, [tmp_path / "missing.log"])
    assert_same(oracle, [f"{tmp_path}//5.log", f"{tmp_path}/5.log/"])
    monkeypatch.chdir(tmp_path)
    assert ours(["5.log"])[0].startswith("Dumping 5.log\nLog starting offset: 5\n")


@pytest.mark.parametrize("count", [1, 3, 11, 12, 40])
def test_complaints_come_in_scalas_order(count: int, tmp_path: Path, oracle: Oracle) -> None:
    gap = batch((NOW, b"k", b"v")) + batch((NOW, b"k", b"v"), base_offset=200)
    files = [tmp_path / f"{number:020d}.log" for number in range(count)]
    for path in files:
        path.write_bytes(gap)
    assert assert_same(oracle, files, deep_iteration=True).count("100 is followed by 200") == count
    assert sorted(scala_order(map(str, files))) == sorted(map(str, files))


def test_memory_and_lines_come_as_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": ["x" * 1000] * 20_000}))
    (file,) = (path / "t-0").glob("*.log")
    lines = Dump([str(file)], DumpOptions(print_data_log=True)).lines()
    assert max(len(text) for text, _ in lines) < 8 << 20
