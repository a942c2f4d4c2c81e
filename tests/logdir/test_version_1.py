"""A log that sparklog 0.1.0 wrote (format version 1) is read, and written on, by every release."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.log.commit import Identity
from tests import paths

GOLDEN = paths.GOLDEN / "sparklog-1" / "logdir"
T0 = 1_700_000_000_000
EVENTS = {  # (partition, offset): (key, value, timestamp ms, headers)
    (0, 1): (None, None, T0, []),
    (0, 2): (b"k2", b"snappy", T0 + 2, [{"key": "h", "value": b"1"}]),
    (0, 3): (None, None, T0 - 2, []),
    (0, 4): (b"k4", b"zstd", T0 + 4, [{"key": "h", "value": b"1"}]),
    (0, 5): (None, None, T0 - 4, []),
    (1, 0): (b"k1", b"gzip", T0 + 1, [{"key": "h", "value": b"1"}]),
    (1, 1): (None, None, T0 - 1, []),
    (1, 2): (b"k3", b"lz4", T0 + 3, [{"key": "h", "value": b"1"}]),
    (1, 3): (None, None, T0 - 3, []),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "log"))


def events(log: sparklog.Log) -> dict[tuple[int, int], tuple[object, ...]]:
    return {
        (r["partition"], r["offset"]): (
            r["key"],
            r["value"],
            round(r["timestamp"].timestamp() * 1000),
            r["headers"],
        )
        for r in log.read("events").read_all().to_pylist()
    }


def test_it_is_read(path: Path) -> None:
    with sparklog.open(path) as log:
        assert sorted(log.topics()) == ["events", "latest"]
        assert log.topic("events").config.to_dict() == {"retention.ms": "-1"}
        assert log.offsets("events") == {0: (1, 6), 1: (0, 4)}
        assert events(log) == EVENTS
        assert log.commits("query/sink")["batch"].to_pylist() == [0, 1, 2]


def test_it_is_written_on(path: Path) -> None:
    with sparklog.open(path, "rw") as log:
        assert events(log) == EVENTS
        replay = log.committed(Identity(writer="query/sink", batch=2, fingerprint="fp2"))
        assert replay is not None
        assert replay.ends == {"latest": {0: (2, 3)}}
        with pytest.raises(sparklog.BatchConflictError):
            log.committed(Identity(writer="query/sink", batch=1, fingerprint="other"))
        assert log.create_topic("dropped").dirs.keys() == {0}
        assert log.append("dropped", pa.table({"value": ["y"]})) == {"dropped": {0: (1, 2)}}
