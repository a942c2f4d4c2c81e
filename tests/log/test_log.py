"""The public face: what a user does in plain Python, on a real directory."""

import datetime as dt
import multiprocessing
import os
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.format.compression import Codec
from sparklog.format.names import log_name
from sparklog.log import arrow_reads, chunk_stager
from sparklog.storage.staging import Framing

T0 = 1_700_000_000_000


def rows(*values: str | None, key: str | None = None, at: int = T0) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([key] * len(values), pa.string()),
            "value": pa.array(values, pa.string()),
            "timestamp": pa.array([at + n for n in range(len(values))], pa.timestamp("ms", "UTC")),
        }
    )


def values(log: sparklog.Log, topic: str, **how: object) -> list[bytes | None]:
    return log.read(topic, **how).read_all().column("value").to_pylist()  # type: ignore[arg-type]


def test_what_is_appended_is_read_back_with_every_column(log_path: str) -> None:
    headers = [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], []]
    table = pa.table(
        {
            "key": pa.array([b"k", None]),
            "value": pa.array([None, b"v"]),
            "headers": pa.array(
                headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
            ),
            "timestamp": pa.array([T0, T0 - 5], pa.timestamp("ms", "UTC")),
        }
    )
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t", partitions=2)
        assert log.append("t", table, partition=1) == {"t": {1: (0, 2)}}
        found = log.read("t").read_all().to_pylist()
    when = [dt.datetime.fromtimestamp(ms / 1000, dt.UTC) for ms in (T0, T0 - 5)]
    common = {"topic": "t", "partition": 1, "timestampType": 0}
    assert found == [
        {"key": b"k", "value": None, "offset": 0, "timestamp": when[0], "headers": headers[0]}
        | common,
        {"key": None, "value": b"v", "offset": 1, "timestamp": when[1], "headers": []} | common,
    ]


def test_keys_go_where_kafkas_default_partitioner_sends_them(log_path: str) -> None:
    # Kafka 4.1: murmur2 of b"21" and so on, as in UtilsTest.testMurmur2.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t", partitions=7)
        log.append("t", pa.table({"key": list(known), "value": list(known)}))
        found = log.read("t", columns=["key", "partition"]).read_all().to_pylist()
    assert {r["key"]: r["partition"] for r in found} == {
        key: (hashed & 0x7FFFFFFF) % 7 for key, hashed in known.items()
    }


def test_a_reader_without_lock_sees_each_commit_and_never_less(log_path: str) -> None:
    path = log_path
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        with sparklog.open(path) as reader:
            assert reader.offsets("t") == {0: (0, 0)}
            for n in range(1, 4):
                log.append("t", rows("x"))
                assert reader.offsets("t") == {0: (0, n)}
                assert len(values(reader, "t")) == n
    assert sparklog.open(path).offsets("t") == {0: (0, 3)}


def test_start_and_end_by_offset_and_time(log_path: str) -> None:
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t", config={"internal.segment.bytes": 200})
        for n in range(20):
            log.append("t", rows(str(n), at=T0 + n * 1000))
        assert values(log, "t", start={0: 3}, end={0: 5}) == [b"3", b"4"]
        when = dt.datetime.fromtimestamp(T0 / 1000 + 7.5, dt.UTC)
        assert values(log, "t", start=when, end=when + dt.timedelta(seconds=2)) == [b"8", b"9"]
        assert log.offsets_for_times("t", when) == {0: 8}
        assert log.offsets_for_times("t", T0 + 19_001) == {0: None}
        assert log.offsets_for_times("t", {0: -1}) == {0: 20}
        assert log.offsets_for_times("t", {0: -3}) == {0: 19}
        assert values(log, "t", start="latest") == []
        with pytest.raises(sparklog.OffsetOutOfRangeError, match=r"has offsets \[0, 20\)"):
            log.read("t", start={0: 21})


def test_follow_gives_what_is_committed_later(log_path: str) -> None:
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t")
        log.append("t", rows("before"))
        stream = log.read("t", follow=True, columns=["value"])
        assert stream.read_next_batch().column(0).to_pylist() == [b"before"]
        later = threading.Timer(0.1, lambda: log.append("t", rows("after")))
        later.start()
        assert stream.read_next_batch().column(0).to_pylist() == [b"after"]
        later.join()


def test_follow_finds_partitions_that_are_added(log_path: str, monkeypatch) -> None:
    monkeypatch.setattr(arrow_reads, "GROWTH_MS", 50)
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t")
        log.append("t", rows("before"))
        stream = log.read("t", follow=True, columns=["value", "partition"])
        mine = log.read("t", [0], follow=True, columns=["value"])
        assert stream.read_next_batch().column(0).to_pylist() == [b"before"]
        assert mine.read_next_batch().column(0).to_pylist() == [b"before"]
        log.alter_topic("t", partitions=2)
        log.append("t", rows("after"), partition=1)
        assert stream.read_next_batch().to_pylist() == [{"value": b"after", "partition": 1}]
        log.append("t", rows("both"), partition=0)
        assert mine.read_next_batch().column(0).to_pylist() == [b"both"]


def test_offsets_survive_delete_and_recreate_with_fewer_partitions(log_path: str) -> None:
    with sparklog.open(log_path, "rw") as log:
        first = log.create_topic("t", partitions=2)
        log.append("t", rows("a", "b", "c"), partition=1)
        log.delete_topic("t")
        assert log.create_topic("t", partitions=1).id != first.id
        log.delete_topic("t")
        log.create_topic("t", partitions=1)
        log.alter_topic("t", partitions=2)
        assert log.offsets("t") == {0: (0, 0), 1: (3, 3)}
        assert log.append("t", rows("d"), partition=1) == {"t": {1: (3, 4)}}
        assert values(log, "t") == [b"d"]


def test_a_topic_made_after_the_log_was_opened_is_read_at_once(log_path: str) -> None:
    with sparklog.open(log_path, "rw") as log, sparklog.open(log_path) as reader:
        for name in ("t", "u"):
            log.create_topic(name, 2)
            log.append(name, rows("a", "b"), partition=1)
        found = log.read("t", [1], start={1: 1}).read_all()
        assert found.column("offset").to_pylist() == [1]
        assert values(reader, "u") == [b"a", b"b"]
        followed = reader.read("t", [1], follow=True)
        assert followed.read_next_batch().num_rows == 2


WEEK = 7 * 24 * 3_600_000


@pytest.mark.parametrize(
    ("options", "config", "kept_ms"),
    [
        ({}, {}, -1),
        ({}, {"retention.bytes": 1000, "segment.ms": 5}, -1),
        ({}, {"retention.ms": WEEK}, WEEK),
        ({"log.retention.hours": 24 * 7}, {}, WEEK),
        ({"log.retention.hours": 1}, {}, 3_600_000),
        ({"log.retention.hours": 1}, {"retention.ms": -1}, -1),
        ({"segment.ms": 5}, {}, -1),
    ],
)
def test_a_new_topic_keeps_its_records_unless_asked(
    log_path: str, options: dict[str, object], config: dict[str, object], kept_ms: int
) -> None:
    """It is written into the config, so that a broker that takes over has the same."""
    with sparklog.open(log_path, "rw", options=options) as log:
        assert log.create_topic("t", config=config).config.retention_ms == kept_ms
    with sparklog.open(log_path, "rw") as log:
        found = log.topic("t").config
        assert found.retention_ms == kept_ms
        assert (found.to_dict().get("retention.ms") == "-1") == (kept_ms == -1)
        log.alter_topic("t", config={"retention.ms": 5})
        log.alter_topic("t", config={"retention.ms": None})
        assert log.topic("t").config.retention_ms == -1  # as a new topic's


def test_altered_topic(log_path: str) -> None:
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t", config={"retention.ms": 5})
        assert list(log.offsets("t")) == [0]
        assert log.alter_topic("t", partitions=3, config={"segment.ms": 7}).partitions == 3
        assert list(log.offsets("t")) == [0, 1, 2]
        assert log.topic("t").config.to_dict() == {"retention.ms": "5", "segment.ms": "7"}
        log.alter_topic("t", config={"retention.ms": None})
        with pytest.raises(sparklog.InvalidRequestError, match="can't be reduced"):
            log.alter_topic("t", partitions=2)
        log.append("t", rows("x"), partition=2)
    with sparklog.open(log_path) as log:
        assert log.topic("t").config.to_dict() == {"retention.ms": "-1", "segment.ms": "7"}
        assert values(log, "t") == [b"x"]


def test_delete_records_hides_what_lies_before(log_path: str) -> None:
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t")
        log.append("t", rows("a", "b", "c"))
        assert log.delete_records("t", {0: 2}) == {0: 2}
        assert log.delete_records("t", {0: 1}) == {0: 2}
        assert log.offsets("t") == {0: (2, 3)}
        with pytest.raises(sparklog.OffsetOutOfRangeError):
            log.read("t", start={0: 1})
        with pytest.raises(sparklog.OffsetOutOfRangeError):
            log.delete_records("t", {0: 4})
        assert log.delete_records("t", {0: -1}) == {0: 3}
    with sparklog.open(log_path, "rw") as log:
        assert log.offsets("t") == {0: (3, 3)}
        assert log.append("t", rows("d")) == {"t": {0: (3, 4)}}


def test_commits_tell_who_wrote_what(log_path: str) -> None:
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t")
        log.append("t", rows("a", "b"))
        found = log.commits().to_pylist()
    assert [(r["kind"], r["topic"], r["partition"], r["first"], r["end"]) for r in found] == [
        ("append", "t", 0, 0, 2)
    ]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a/b", "character"),
        ("__cluster_metadata", "reserved"),
        ("__consumer_offsets", "reserved"),
        ("..", "name"),
        ("t", "exists"),
    ],
)
def test_names_that_are_refused(log_path: str, name: str, why: str) -> None:
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t")
        with pytest.raises(sparklog.InvalidRequestError, match=why):
            log.create_topic(name)


@pytest.mark.parametrize("length", [249, 220, 210])
def test_a_topic_with_the_longest_name(tmp_path: Path, length: int) -> None:
    """LogManagerTest.testCreateAndDeleteOverlyLongTopic: its files go under a longer name."""
    name = "n" * length
    with sparklog.open(tmp_path / "log", "rw") as log:
        for _ in range(2):
            log.create_topic(name, 2)
            log.append(name, rows("a"), partition=1)
            log.delete_topic(name)
            assert log.topics() == {}
        log.undelete_topic(name)
        assert values(log, name) == [b"a"]
        log.delete_topic(name)
        log.delete_topic(name, now=True)
        assert not [n for n in os.listdir(tmp_path / "log") if n.startswith("nn")]
        log.create_topic(name, 2)
        assert log.offsets(name) == {0: (0, 0), 1: (2, 2)}


def test_colliding_names_are_refused(log_path: str) -> None:
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("a.b")
        with pytest.raises(sparklog.InvalidRequestError, match="collides"):
            log.create_topic("a_b")


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (pa.table({"value": ["x"], "partition": [5]}), "no partition 5"),
        (pa.table({"value": ["x"], "colour": ["red"]}), "colour"),
        (pa.table({"value": [1.5]}), "value"),
        (
            pa.table({"value": ["x" * 1_100_000]}),
            r"topic t: .*sparklog configs alter .*/log --topic t --add-config max.message.bytes",
        ),
    ],
)
def test_bad_rows_change_nothing(log_path: str, table: pa.Table, why: str) -> None:
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t")
        good = pa.table({"value": ["good"]})
        log.append("t", good)
        with pytest.raises(sparklog.InvalidRequestError, match=why):
            log.append("t", table)
        assert values(log, "t") == [b"good"]


def test_timestamps_out_of_bounds_are_refused(log_path: str) -> None:
    bounds = {"message.timestamp.before.max.ms": 10, "message.timestamp.after.max.ms": 10}
    with sparklog.open(log_path, "rw", clock=ManualClock(T0)) as log:
        log.create_topic("t", config=bounds)
        log.append("t", rows("x", at=T0 - 10))
        for at in (T0 - 11, T0 + 11):
            with pytest.raises(sparklog.InvalidRequestError, match="timestamp"):
                log.append("t", rows("x", at=at))
            both = pa.concat_tables([rows("x", at=T0), rows("x", at=at)])
            with pytest.raises(sparklog.InvalidRequestError, match="timestamp"):
                log.append("t", both)
        assert log.offsets("t") == {0: (0, 1)}


def test_log_append_time_is_the_commits_and_never_goes_back(log_path: str) -> None:
    clock = ManualClock(T0)
    path, given = log_path, {"message.timestamp.type": "LogAppendTime"}
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=given)
        early = log.stager(Framing(codec=Codec.LZ4))
        early.add(log.topic("t"), rows("late", at=T0 - 9).to_batches()[0])
        staged = early.finish()
        clock.advance(5000)
        log.append("t", rows("first", at=1))
        log.commit(staged)  # staged before the first one, committed after it
        clock.now_ms = T0 - 60_000  # NTP
        log.append("t", rows("back"))
    clock.now_ms = T0 - 30_000
    with sparklog.open(path, "rw", clock=clock) as log:
        log.append("t", rows("restarted"))
        clock.now_ms = T0 + 7000
        log.append("t", rows("again"))
        found = log.read("t", columns=["value", "timestamp", "timestampType"]).read_all()
    assert found["value"].to_pylist() == [b"first", b"late", b"back", b"restarted", b"again"]
    times = [int(t.timestamp() * 1000) - T0 for t in found["timestamp"].to_pylist()]
    assert times == [5000, 5000, 5000, 5000, 7000]
    assert set(found["timestampType"].to_pylist()) == {1}


def test_times_of_commits_never_go_back(log_path: str, clock: ManualClock) -> None:
    with sparklog.open(log_path, "rw", clock=clock) as log:
        log.create_topic("t")
        for step_ms in (5000, -60_000, 1000):
            clock.advance(step_ms)
            log.append("t", rows("x"))
        times = log.commits()["time"].to_pylist()
    assert times == sorted(times)


def test_log_append_time_of_a_segment_that_a_task_staged(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    given = {"message.timestamp.type": "LogAppendTime", "internal.segment.bytes": 2 << 20}
    with sparklog.open(tmp_path / "log", "rw", clock=clock) as log:
        log.create_topic("t", config=given)
        staged = log.stager(Framing(), label="task")
        table = pa.table({"value": ["x" * 1000] * 1000})
        staged.add(log.topic("t"), table.to_batches()[0])
        (chunk,) = staged.finish()
        assert chunk.path is not None and chunk.synced_boot_id is not None
        clock.advance(5000)
        log.append("t", rows("first"))
        log.commit([chunk])
        assert not os.path.exists(chunk.path)
        assert len(list((tmp_path / "log" / "t-0").glob("*.log"))) == 2  # it was adopted
        found = log.read("t", columns=["timestamp"]).read_all()["timestamp"].to_pylist()
        assert {t.timestamp() * 1000 for t in found} == {T0 + 5000}
        assert len(found) == 1001
        assert log.offsets_for_times("t", T0 + 5000) == {0: 0}
        assert log.offsets_for_times("t", T0 + 5001) == {0: None}


def test_rows_without_a_key_go_round(log_path: str) -> None:
    keyless = pa.table({"value": ["v"] * 100})
    path = log_path
    for _ in range(3):
        with sparklog.open(path, "rw") as log:
            log.create_topic("t", partitions=6, if_not_exists=True)
            for _ in range(25):
                assert len(log.append("t", keyless)["t"]) == 1  # a small append isn't torn apart
    with sparklog.open(path) as log:
        ends = [end for _, end in log.offsets("t").values()]
    assert sum(ends) == 7500 and min(ends) >= 300, ends
    with sparklog.open(path, "rw") as log:
        log.create_topic("u", partitions=6)
        log.append("u", pa.table({"value": ["v" * 1000] * 6 * 1000}))  # 23 batches of 256 KiB
        ends = [end for _, end in log.offsets("u").values()]
    assert sum(ends) == 6000 and min(ends) >= 3 * 262, ends


def test_a_brokers_own_topic_is_taken_over_and_not_written(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "made", "rw") as log:
        log.create_topic("t")
        log.append("t", rows("x", key="k"))
    shutil.copytree(tmp_path / "made" / "t-0", tmp_path / "log" / "__consumer_offsets-0")
    for _ in range(2):
        with sparklog.open(tmp_path / "log", "rw") as log:
            assert values(log, "__consumer_offsets") == [b"x"]
            with pytest.raises(sparklog.InvalidRequestError, match="internal to brokers"):
                log.append("__consumer_offsets", rows("y", key="k"))
            assert log.offsets("__consumer_offsets") == {0: (0, 1)}


def test_a_null_partition_is_left_to_the_key(log_path: str) -> None:
    table = pa.table(
        {
            "key": ["21", "21", None],
            "value": ["asked", "hashed", "neither"],
            "partition": pa.array([0, None, None], pa.int32()),
        }
    )
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t", partitions=5)
        log.append("t", table)
        found = log.read("t", columns=["value", "partition"]).read_all().to_pylist()
        where = {row["value"]: row["partition"] for row in found}
        assert where[b"asked"] == 0
        assert where[b"hashed"] == (-973932308 & 0x7FFFFFFF) % 5
        assert len(where) == 3
        bad = table.set_column(2, "partition", pa.array([5, None, None], pa.int32()))
        with pytest.raises(sparklog.InvalidRequestError, match="no partition 5"):
            log.append("t", bad)


def test_idempotent_producer(log_path: str) -> None:
    clock = ManualClock(T0)  # producers expire by record time, as in Kafka
    with sparklog.open(log_path, "rw", clock=clock) as log:
        log.create_topic("t")
        first = log.append("t", rows("a", "b"), partition=0, producer=(7, 0, 0))
        assert log.append("t", rows("a", "b"), partition=0, producer=(7, 0, 0)) == first
        with pytest.raises(sparklog.OutOfOrderSequenceError):
            log.append("t", rows("d"), partition=0, producer=(7, 0, 5))
        log.append("t", rows("c"), partition=0, producer=(7, 1, 0))
        with pytest.raises(sparklog.FencedError):
            log.append("t", rows("z"), partition=0, producer=(7, 0, 2))
    with sparklog.open(log_path, "rw", clock=clock) as log:
        assert log.append("t", rows("c"), partition=0, producer=(7, 1, 0)) == {"t": {0: (2, 3)}}
        assert values(log, "t") == [b"a", b"b", b"c"]


def test_an_idempotent_append_of_several_segments_is_made_in_smaller_tables(
    log_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_stager, "FLUSH_BYTES", 500)
    table, framing = rows(*("v" * 100 for _ in range(30))), Framing(batch_size=500)
    batches = pa.concat_tables([table.slice(first, 5) for first in range(0, 30, 5)])
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t", config={"internal.segment.bytes": 1000})
        with pytest.raises(sparklog.InvalidRequestError, match="append smaller tables"):
            log.append("t", batches, partition=0, producer=(7, 0, 0), framing=framing)
        assert log.offsets("t") == {0: (0, 0)}
        for first in range(0, 30, 5):
            for _ in ("sent", "sent again"):
                log.append("t", table.slice(first, 5), partition=0, producer=(7, 0, first))
        assert values(log, "t") == [b"v" * 100] * 30


def test_several_log_dirs_fill_evenly(tmp_path: Path) -> None:
    path = f"{tmp_path}/a,{tmp_path}/b"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=5)
        for p in range(5):
            log.append("t", rows(str(p)), partition=p)
    counts = [len([n for n in os.listdir(tmp_path / d) if n.startswith("t-")]) for d in "ab"]
    assert counts == [3, 2]
    with sparklog.open(path) as log:
        assert sorted(values(log, "t")) == [b"0", b"1", b"2", b"3", b"4"]


def _writer(path: str, name: str, count: int) -> None:
    with sparklog.open(path, "rw") as log:
        for n in range(count):
            log.append("t", rows(f"{name}{n}", f"{name}{n}"))


@pytest.mark.parametrize("log_path", ["directory", "file"], indirect=True)
def test_two_processes_and_two_threads_take_turns(log_path: str) -> None:
    path = log_path
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        context = multiprocessing.get_context("spawn")
        others = [context.Process(target=_writer, args=(path, name, 20)) for name in "ab"]
        threads = [threading.Thread(target=_writer, args=(path, name, 20)) for name in "cd"]
        for worker in (*others, *threads):
            worker.start()
        for n in range(20):
            log.append("t", rows(f"m{n}", f"m{n}"))
        for worker in (*others, *threads):
            worker.join()
        assert [p.exitcode for p in others] == [0, 0]
        found = [v.decode() for v in values(log, "t") if v is not None]
    assert len(found) == 200
    assert found[0::2] == found[1::2]  # the two rows of an append stand together
    for name in "abcdm":
        assert [v for v in found[0::2] if v[0] == name] == [f"{name}{n}" for n in range(20)]


def test_a_broker_is_refused_while_a_log_is_open_and_after_a_crash(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw"):
        assert (tmp_path / "log" / "sparklog_open").is_dir()
    assert not (tmp_path / "log" / "sparklog_open").exists()
    assert (tmp_path / "log" / ".kafka_cleanshutdown").exists()


def test_a_writer_is_refused_where_a_broker_runs(tmp_path: Path) -> None:
    import fcntl

    with sparklog.open(tmp_path / "log", "rw"):
        pass
    with open(tmp_path / "log" / ".lock", "r+b") as broker:
        fcntl.lockf(broker, fcntl.LOCK_EX | fcntl.LOCK_NB)  # what Java's FileLock does

        def attempt() -> None:
            with pytest.raises(sparklog.LogLockedError, match="broker"):
                sparklog.open(tmp_path / "log", "rw")

        attempt()
        sparklog.open(tmp_path / "log").close()  # reads go on
    sparklog.open(tmp_path / "log", "rw").close()  # the broker has stopped


def test_a_new_log_begins_in_an_empty_directory_only(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    with pytest.raises(sparklog.InvalidRequestError, match="precious"):
        sparklog.open(tmp_path, "rw")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
    topics = path / "sparklog.topics"
    topics.write_text(topics.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(sparklog.UnsupportedVersionError, match="format version 2"):
        sparklog.open(path).topics()


MANY = """
import sys, pyarrow as pa, sparklog
path, count = sys.argv[1], int(sys.argv[2])
with sparklog.open(path, "rw") as log:
    log.create_topic("t", partitions=count)
    numbers = pa.array(range(count), pa.int32())
    log.append("t", pa.table({"value": numbers.cast(pa.string()), "partition": numbers}))
    assert log.read("t").read_all().num_rows == count
with sparklog.open(path) as log:
    assert log.offsets("t") == {p: (0, 1) for p in range(count)}
"""


@pytest.mark.parametrize(
    ("partitions", "descriptors"),
    [(300, 64), pytest.param(10_000, 1024, marks=pytest.mark.slow)],
)
@pytest.mark.deep
def test_many_partitions_under_few_descriptors(
    tmp_path: Path, partitions: int, descriptors: int
) -> None:
    import subprocess
    import sys

    command = f'ulimit -n {descriptors}; exec "$@"'
    script = [sys.executable, "-c", MANY, str(tmp_path / "log"), str(partitions)]
    subprocess.run(["bash", "-c", command, "bash", *script], check=True, cwd=os.getcwd())


def test_rolled_segments_are_read_across(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", config={"internal.segment.bytes": 500})
        for n in range(50):
            log.append("t", rows(*(f"{n}.{i}" for i in range(3))))
        assert len(values(log, "t")) == 150
    logs = sorted(n for n in os.listdir(tmp_path / "log" / "t-0") if n.endswith(".log"))
    assert len(logs) > 5
    assert logs[0] == log_name(0)
