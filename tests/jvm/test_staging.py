"""Rows become chunks in Scala as they do in Python."""

import functools
import os
import re
import resource
import socket
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import sparklog
from sparklog.clock import system_clock
from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import (
    InvalidRequestError,
    LogReplacedError,
    PartitionOfflineError,
    RecordTooLargeError,
    SparklogError,
    StorageUnavailableError,
    UnknownTopicError,
)
from sparklog.format.compression import Codec
from sparklog.fs import LOCAL
from sparklog.logdir.log_dir_check import DriverLogDir
from sparklog.logdir.staging import LogDirStaging
from sparklog.service import verify
from sparklog.sink import jvm_plan
from sparklog.sink.task import TaskPlan, error_of
from sparklog.storage.chunk_table import ChunkTable
from sparklog.storage.commits import Chunk
from sparklog.storage.staging import INLINE_BYTES, Framing
from sparklog.storage.view import TopicInfo
from tests.jvm.probe import Probe, pack, unpack
from tests.jvm.rows import Row, batches, written
from tests.log.chunks import records_of

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
ALL = StructType(
    [
        StructField("offset", LongType()),  # the sink takes no notice of it
        StructField("key", StringType()),
        StructField("value", BinaryType()),
        StructField("headers", ArrayType(HEADER)),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("timestamp", TimestampType()),
    ]
)
COLUMNS = [name for name in ALL.names if name != "offset"]
NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("staging") / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 3)
        log.create_topic("one")
        log.create_topic("c", 2, {"cleanup.policy": "compact", "max.message.bytes": 2000})
        log.create_topic("z", 5, {"compression.type": "zstd"})
    return path


@functools.cache
def topics_of(home: Path) -> dict[str, TopicInfo]:
    with sparklog.open(home) as log:
        return log.topics()


def planned(home: Path, **fields: Any) -> TaskPlan:
    fields = {
        "staging": LogDirStaging(DriverLogDir.read(str(home))),
        "topic": None,
        "topics": {**topics_of(home)},
        "new_topic": (4, TopicConfig()),
        "framing": Framing(),
        "label": "l-1",
        "columns": COLUMNS,
        **fields,
    }
    return TaskPlan(**fields)


def row(**fields: Any) -> Row:
    return {**dict.fromkeys(ALL.names), "topic": "t", "value": b"v", **fields}


def in_scala(
    probe: Probe, plan: TaskPlan, rows: Sequence[Row], schema: StructType = ALL, *,
    task: int = 0, unsafe: bool = True,
) -> ChunkTable:  # fmt: skip
    """Stage the rows; raises the error that Scala threw."""
    asked = jvm_plan.to_json(plan)
    assert asked is not None
    start = pack([asked, schema.json().encode()]) + task.to_bytes(4, "big") + bytes([unsafe])
    answer = probe.call("stage", start + written(rows, schema))
    if answer[0] == 0:
        return ChunkTable.unpack(answer[1:])
    kind, text, path, shown = (part.decode() for part in unpack(answer[1:]))
    assert shown == f"sparklog.errors.{kind}: {text}"
    raise error_of({"error": kind, "message": text, "path": None if path == "null" else path})


def in_python(
    plan: TaskPlan, rows: Sequence[Row], schema: StructType = ALL, *, task: int = 0, size: int = 7
) -> ChunkTable:
    return plan.run(batches(rows, schema, size), task=task)


def timeless(chunks: Iterable[Chunk]) -> dict[TopicPartition, list[Row]]:
    """The records of chunks whose rows came without a timestamp."""
    return {
        key: [{name: value for name, value in each.items() if name != "timestamp"} for each in rows]
        for key, rows in records_of(chunks).items()
    }


texts = st.text(max_size=12)
rows_of_any_kind = st.fixed_dictionaries(
    {
        "offset": st.just(1),
        "key": st.none() | texts,
        "value": st.none() | st.binary(max_size=40) | st.just(b"x" * 3000),
        "headers": st.none()
        | st.lists(st.tuples(texts, st.none() | st.binary(max_size=9)), max_size=3),
        "topic": st.sampled_from(["t", "one", "z", "new"]),
        "partition": st.none() | st.just(0),
        "timestamp": st.integers(-(10**12), 10**16),
    }
)


SOME_CODECS = Codec.NONE, Codec.ZSTD  # the others are for CI


@pytest.mark.parametrize(
    "codec", [pytest.param(c, marks=() if c in SOME_CODECS else pytest.mark.deep) for c in Codec]
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(rows_of_any_kind, max_size=40),
    batch_size=st.sampled_from([1, 100, 5000, 1 << 20]),
    unsafe=st.booleans(),
    task=st.integers(0, 3),
)
def test_the_same_rows_are_the_same_records_in_the_same_partitions(
    codec: Codec,
    rows: list[Row],
    batch_size: int,
    unsafe: bool,
    task: int,
    probe: Probe,
    home: Path,
) -> None:
    plan = planned(home, framing=Framing(codec=codec, batch_size=batch_size))
    scala = in_scala(probe, plan, rows, task=task, unsafe=unsafe)
    python = in_python(plan, rows, task=task)
    assert records_of(scala.chunks()) == records_of(python.chunks())
    assert {(c.topic, c.topic_id) for c in scala.chunks()} == {
        (c.topic, c.topic_id) for c in python.chunks()
    }


def test_a_topic_for_all_rows_and_columns_that_are_not_there(probe: Probe, home: Path) -> None:
    schema = StructType([StructField("value", StringType()), StructField("topic", StringType())])
    rows = [{"value": "grüße", "topic": None}, {"value": None, "topic": "elsewhere"}]
    plan = planned(home, topic="z", columns=["value"])
    for unsafe in (True, False):
        chunks = [*in_scala(probe, plan, rows, schema, unsafe=unsafe).chunks()]
        found = timeless(chunks)
        assert found == timeless(in_python(plan, rows, schema).chunks())
        assert [key.topic for key in found] == ["z"]
        assert chunks[0].topic_id == topics_of(home)["z"].id
        assert [chunk.crc for chunk in chunks] == [crc32c.crc32c(c.data or b"") for c in chunks]


def test_the_checksum_is_that_of_all_batches_of_a_chunk(probe: Probe, home: Path) -> None:
    plan = planned(home, framing=Framing(batch_size=100))
    rows = [row(topic="one", value=b"%d" % number * 90) for number in range(9)]
    (chunk,) = in_scala(probe, plan, rows).chunks()
    assert chunk.crc == crc32c.crc32c(chunk.data or b"")


def test_rows_adrift_are_spread_alike_by_task_and_batch_size(probe: Probe, home: Path) -> None:
    rows = [row(topic="z", value=bytes(number * number % 301)) for number in range(2000)]
    rows[50:60] = [row(topic="z", key="k", value=bytes(1000))] * 10  # they don't count
    rows[70:80] = [row(topic="z", partition=4, value=bytes(1000))] * 10
    seen = set()
    for task in range(4):
        for batch_size in (1, 777, 10_000):
            plan = planned(home, framing=Framing(batch_size=batch_size))
            scala = timeless(in_scala(probe, plan, rows, task=task).chunks())
            assert scala == timeless(in_python(plan, rows, task=task).chunks())
            assert len(scala) == 5
            seen.add(tuple(len(records) for _, records in sorted(scala.items())))
    assert len(seen) > 4


def test_rows_adrift_avoid_partitions_that_are_offline(probe: Probe, home: Path) -> None:
    plan = planned(home, topics=offline(topics_of(home)), framing=Framing(batch_size=100))
    rows = [row(value=bytes(90)) for _ in range(60)]
    scala = timeless(in_scala(probe, plan, rows).chunks())
    assert scala == timeless(in_python(plan, rows).chunks())
    assert sorted(key.partition for key in scala) == [0, 2]


def test_rows_without_a_timestamp_get_the_time_at_which_they_are_framed(
    probe: Probe, home: Path
) -> None:
    before = system_clock()
    chunks = [*in_scala(probe, planned(home), [row() for _ in range(1000)]).chunks()]
    found = [r["timestamp"] // 1000 for rows in records_of(chunks).values() for r in rows]
    assert before <= min(found) <= max(found) <= system_clock()


def offline(topics: dict[str, TopicInfo]) -> dict[str, TopicInfo]:
    gone = PartitionOfflineError("its log dir isn't there", path="/gone/t-1")
    return {**topics, "t": replace(topics["t"], offline={1: gone})}


BAD: dict[str, tuple[dict[str, Any], dict[str, Any], type[SparklogError], str]] = {
    "null topic": ({"topic": None}, {}, InvalidRequestError, "a row has a null topic"),
    "unknown topic": ({"topic": "x"}, {"new_topic": None}, UnknownTopicError, "topic x is not in"),
    "topic a/b": ({"topic": "a/b"}, {}, InvalidRequestError, "'a/b' holds other characters"),
    "topic ..": ({"topic": ".."}, {}, InvalidRequestError, "'..' is not allowed"),
    "no topic": ({"topic": ""}, {}, InvalidRequestError, "'' is not allowed"),
    "long topic": ({"topic": "ö\u200b" * 150}, {}, InvalidRequestError, "has 300 characters"),
    "odd topic": (
        {"topic": 'it\'s "a"\\\t\x7f\xa0\u2028\ue000\U0001f600\U000e0001'},
        {},
        InvalidRequestError,
        "holds other characters",
    ),
    "quoted topic": ({"topic": "it's"}, {}, InvalidRequestError, '"it\'s" holds other'),
    "partition 3": ({"partition": 3}, {}, InvalidRequestError, "no partition 3: expected one of"),
    "partition -1": ({"partition": -1}, {}, InvalidRequestError, "no partition -1"),
    "null key": ({"topic": "c"}, {}, InvalidRequestError, "topic c is compacted"),
    "null header": ({"headers": [None]}, {}, InvalidRequestError, "a null header or a null header"),
    "null header key": (
        {"headers": [("k", b"v"), (None, b"v")]},
        {},
        InvalidRequestError,
        "a null header or a null header key",
    ),
    "too large": (
        {"topic": "c", "key": "k", "value": b"x" * 3000},
        {},
        RecordTooLargeError,
        "a record makes a batch of 3071 bytes, but max.message.bytes is 2000",
    ),
    "offline": ({"partition": 1}, {"topics": offline}, PartitionOfflineError, "its log dir isn't"),
    "level": (
        {"topic": "z"},
        {"framing": Framing(level=99)},
        InvalidRequestError,
        "the level of zstd must be from",
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("unsafe", [True, False])
def test_bad_rows_are_the_same_errors(case: str, unsafe: bool, probe: Probe, home: Path) -> None:
    fields, more, kind, words = BAD[case]
    more = {
        name: value(topics_of(home)) if callable(value) else value for name, value in more.items()
    }
    rows = [row(topic="one"), row(**fields), row(topic="one")]
    told = []
    for stage in (
        lambda: in_scala(probe, planned(home, **more), rows, unsafe=unsafe),
        lambda: in_python(planned(home, **more), rows, size=1),
    ):
        with pytest.raises(kind) as caught:
            stage()
        told.append((type(caught.value), str(caught.value), caught.value.path))
    assert told[0] == told[1]
    assert words in told[0][1]
    assert not [*home.glob("sparklog-chunk-*")]


def test_a_record_that_no_codec_makes_small_enough(probe: Probe, home: Path) -> None:
    rows = [
        row(topic="c", key="k", value=os.urandom(1000)),
        row(topic="c", key="k", value=os.urandom(3000)),
    ]
    for codec in list(Codec)[1:]:
        plan = planned(home, framing=Framing(codec=codec))
        told = []
        for stage in (in_scala, functools.partial(in_python)):
            with pytest.raises(RecordTooLargeError) as caught:
                stage(*((probe,) if stage is in_scala else ()), plan, rows)
            told.append(re.sub(r"of 3\d\d\d bytes", "of 3.. bytes", str(caught.value)))
        assert told[0] == told[1]


def test_partitions_that_are_missing_and_log_dirs_of_their_own(
    probe: Probe, home: Path, tmp_path: Path
) -> None:
    """A broker's directory may have any of a topic's partitions, in any of its log dirs."""
    dirs = {0: f"{tmp_path}/a/t-0", 2: f"{tmp_path}/b/t-2", 5: f"{tmp_path}/a/t-5"}
    for each in "ab":
        (tmp_path / each).mkdir()
    topics = {"t": replace(topics_of(home)["t"], partitions=6, dirs=dirs)}
    rows = [row(partition=p, value=bytes(300_000)) for p in (5, 2, 0)]
    found = [*in_scala(probe, planned(home, topics=topics), rows).chunks()]
    assert [Path(chunk.path or "").parent.name for chunk in found] == ["a", "b", "a"]
    assert [chunk.partition for chunk in found] == [5, 2, 0]
    with pytest.raises(InvalidRequestError, match=r"no partition 1: expected one of \[0, 2, 5\]"):
        in_scala(probe, planned(home, topics=topics), [row(partition=1)])


def test_large_chunks_are_files_that_a_commit_takes_in(probe: Probe, tmp_path: Path) -> None:
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 2, {"segment.bytes": 2 << 20})
        plan = planned(path, topics=log.topics(), topic="t")
        rows = [row(key=f"{n % 2}", value=b"%09d" % n * 30) for n in range(20_000)]
        table = in_scala(probe, plan, rows)
        chunks = [*table.chunks()]
        staged = {name.name for name in path.glob("sparklog-chunk-*")}
        assert {Path(chunk.path or "").name for chunk in chunks} == staged
        assert all(re.fullmatch(r"sparklog-chunk-l-1-0-[0-9a-f]{32}", name) for name in staged)
        assert {oct(p.stat().st_mode & 0o777) for p in path.glob("sparklog-chunk-*")} == {"0o644"}
        assert all(chunk.size_bytes <= 2 << 20 for chunk in chunks)  # each fits a segment
        synced = [chunk for chunk in chunks if chunk.synced_boot_id == LOCAL.boot_id()]
        assert {chunk.size_bytes >= 256 << 10 for chunk in synced} == {True}
        assert len(synced) >= len(chunks) - 2
        assert timeless(chunks) == timeless(in_python(plan, rows).chunks())
        log.commit(chunks)
        assert log.read("t").read_all().num_rows == 20_000


def test_many_small_chunks_are_files(probe: Probe, home: Path) -> None:
    """A task's answer goes to the driver, so no more than INLINE_BYTES of rows may be in it."""
    plan = planned(home)
    for partitions, is_inline in ((1, True), (3, False)):
        rows = [row(partition=p, value=bytes(INLINE_BYTES // 2)) for p in range(partitions)]
        chunks = [*in_scala(probe, plan, rows).chunks()]
        assert [chunk.path is None for chunk in chunks] == [is_inline] * partitions
        assert timeless(chunks) == timeless(in_python(plan, rows).chunks())
    for chunk in chunks:
        os.unlink(chunk.path or "")


@pytest.mark.deep
@pytest.mark.parametrize("by", ["scala", "python"])
def test_partitions_that_moved_since_the_plan_was_made(
    probe: Probe, tmp_path: Path, by: str
) -> None:
    """A task that comes late, or again, leaves its files where the plan says; none is lost."""
    dirs = [tmp_path / "log", tmp_path / "disk2"]
    path = ",".join(map(str, dirs))
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 2, {"segment.bytes": 1 << 20})
        plan = planned(dirs[0], topics=log.topics(), topic="t")
        rows = [row(key=f"{n % 2}", value=b"%09d" % n * 300) for n in range(240)]
        places = {p: os.path.dirname(place) for p, place in log.topic("t").dirs.items()}
        for attempt in range(2):
            table = in_scala(probe, plan, rows) if by == "scala" else in_python(plan, rows)
            chunks = [*table.chunks()]
            for chunk in chunks:
                assert os.path.dirname(chunk.path or "") == places[chunk.partition]
            for p, place in places.items() if not attempt else ():  # staged, not committed
                log.move_partition("t", p, str(dirs[1 - [*map(str, dirs)].index(place)]))
            log.commit(chunks)
        assert log.read("t").read_all().num_rows == 480
        assert not [*tmp_path.glob("*/sparklog-chunk-*")]
    assert verify(path).ok


def test_a_log_that_is_not_the_drivers(probe: Probe, tmp_path: Path) -> None:
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        topics = log.topics()
        place = DriverLogDir.read(str(path))

        def tell(identity: DriverLogDir) -> str:
            plan = planned(path, topics=topics, staging=LogDirStaging(identity))
            told = []
            for stage in (functools.partial(in_scala, probe), in_python):
                with pytest.raises((InvalidRequestError, LogReplacedError)) as caught:
                    stage(plan, [row()])
                told.append((type(caught.value), str(caught.value)))
            assert told[0] == told[1]
            return told[0][1]

        in_scala(probe, planned(path, topics=topics, staging=LogDirStaging(place)), [row()])
        moved = replace(place, device=place.device + 1)  # another mount of the same file
        in_scala(probe, planned(path, topics=topics, staging=LogDirStaging(moved)), [row()])
        assert "was removed or replaced" in tell(replace(place, inode=place.inode + 1))
        assert "can't see the log" in tell(replace(place, boot="another", device=0))
        assert "was removed" in tell(replace(place, home=str(tmp_path / "nowhere")))
        nowhere = replace(place, boot="another", home=str(tmp_path / "nowhere"))
        assert socket.gethostname() in tell(nowhere)


def test_what_the_system_refuses_is_told_as_python_tells_it(
    probe: Probe, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    topics = {"t": replace(topics_of(home)["t"], dirs={0: f"{tmp_path}/file/t-0"}, partitions=1)}
    told = []
    for stage in (functools.partial(in_scala, probe), in_python):
        with pytest.raises(StorageUnavailableError) as caught:
            stage(planned(home, topics=topics), [row(value=bytes(300_000))])
        told.append(re.sub("[0-9a-f]{32}", "..", str(caught.value)))
    assert told[0] == told[1]
    assert told[0].endswith("file/sparklog-chunk-l-1-0-..: Not a directory")


def test_a_disk_that_is_full_leaves_nothing(probe: Probe, home: Path) -> None:
    rows = [row(partition=p % 2, value=bytes(300_000)) for p in range(40)]
    probe.call("echo")
    others = {*home.glob("sparklog-chunk-*")}  # of earlier tests
    limits = resource.prlimit(probe.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(probe.pid, resource.RLIMIT_FSIZE, (1 << 20, limits[1]))  # the nearest to it
    try:
        with pytest.raises(
            StorageUnavailableError, match=r"can't write .*: File too large"
        ) as full:
            in_scala(probe, planned(home), rows)
    finally:
        resource.prlimit(probe.pid, resource.RLIMIT_FSIZE, limits)
    assert full.value.path is not None
    assert {*home.glob("sparklog-chunk-*")} == others


@pytest.fixture(scope="module")
def small_probe(probe: Probe) -> Iterator[Probe]:
    """A JVM with little more than a task may have: 64 MiB, and what the JVM itself has there."""
    made = Probe("-Xmx72m", "-XX:MaxDirectMemorySize=2m")
    made.call("echo")
    before = len(os.listdir(f"/proc/{made.pid}/fd"))
    most = resource.prlimit(made.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(made.pid, resource.RLIMIT_NOFILE, (before + 64, most))
    yield made
    made.close()


@pytest.mark.parametrize("codec", [pytest.param(Codec.NONE, marks=pytest.mark.deep), Codec.ZSTD])
@pytest.mark.parametrize(
    ("count", "partitions", "value_bytes"),
    [
        pytest.param(300_000, 10, 1000, marks=pytest.mark.deep),
        pytest.param(200_000, 3000, 2000, marks=pytest.mark.deep),
        (900, 900, 1_000_000),
        (1200, 600, 200_000),  # of chunks that are too small for files of their own
        pytest.param(60_000, 10_000, 3000, marks=pytest.mark.deep),
    ],
)
def test_memory_and_files_are_bounded_whatever_the_rows_are(
    count: int, partitions: int, value_bytes: int, codec: Codec, small_probe: Probe, tmp_path: Path
) -> None:
    """Of many partitions, of large rows, of more than fits in memory by far."""
    path = tmp_path / "log"
    with sparklog.open(path, "rw"):
        pass
    config = TopicConfig.parse({"max.message.bytes": 2 << 20})
    plan = planned(
        path, topics={}, new_topic=(partitions // 10, config), framing=Framing(codec=codec),
        columns=["topic", "partition", "value"],
    )  # fmt: skip
    asked = jvm_plan.to_json(plan)
    assert asked is not None
    numbers = struct.pack(">3i", count, partitions, value_bytes)
    table = ChunkTable.unpack(small_probe.call("stageMany", pack([asked]) + numbers))
    records: Counter[TopicPartition] = Counter()
    for chunk in table.chunks():
        records[chunk.key] += chunk.records
        assert os.path.getsize(chunk.path or "") == chunk.size_bytes
    assert len(records) == partitions
    assert set(records.values()) <= {count // partitions, -(-count // partitions)}
    few = [*table.chunks()][:: max(1, len(table) // 20)]
    assert sum(map(len, records_of(few).values())) == sum(chunk.records for chunk in few)
