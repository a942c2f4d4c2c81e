"""The data source's writers as Spark calls them, without a Spark session."""

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import sparklog
from sparklog import sink
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL
from sparklog.logdir.broker_lockout import is_marked_open
from sparklog.logdir.chunk_files import CHUNK_PREFIX
from sparklog.sink import open_logs
from sparklog.sink.options import parse
from sparklog.sink.segment_sink import plan_tasks
from sparklog.sink.writers import BatchWriter, Staged, StreamWriter
from sparklog.storage.staging import chunk_label
from sparklog.tiered.target import open_store

SCHEMA = StructType([StructField("value", StringType())])
LARGE = 40 << 20  # bytes of one task: its file becomes a segment by rename


@pytest.fixture
def home(tmp_path: Path) -> Iterator[str]:
    """A log dir, and beside it a checkpoint in which batches 0 and 1 are planned."""
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for batch in (0, 1):
        (offsets / str(batch)).write_text(f"v1\n{{}}\n{batch}")
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"query"}')
    home = str(tmp_path / "log")
    yield home
    sink.close(home)


def writer(home: str) -> StreamWriter:
    """A new instance, as each of Spark's calls has."""
    checkpoint = os.path.join(os.path.dirname(home), "checkpoint")
    given = {"path": home, "topic": "t", "checkpointLocation": checkpoint}
    return StreamWriter(parse({**given, "compression.type": "none"}), SCHEMA, False)


def stage(home: str, size: int) -> list[Any]:
    """What two tasks send; each stages `size` bytes of values."""
    rows = pa.RecordBatch.from_pydict({"value": ["x" * 1000] * (size // 1000)})
    plan = pickle.dumps(writer(home))
    return [pickle.loads(plan).write(iter([rows])) for _ in range(2)]


def chunk_files(home: str) -> list[str]:
    return [name for name in os.listdir(home) if name.startswith(CHUNK_PREFIX)]


def segments(home: str) -> dict[str, int]:
    directory = Path(home, "t-0")
    return {path.name: path.stat().st_size for path in directory.glob("*.log")}


@pytest.mark.parametrize("size", [100_000, 1 << 20, LARGE], ids=["rows", "files", "segments"])
def test_abort_after_commit(home: str, size: int) -> None:
    """Spark may abort what it couldn't see committed: only staged files go, no record does."""
    messages = stage(home, size)
    files = chunk_files(home)
    assert len(files) == (0 if size == 100_000 else 2)
    writer(home).commit(messages, 0)
    assert chunk_files(home) == []
    before = segments(home)
    assert len(before) == (2 if size == LARGE else 1)
    writer(home).abort(messages, 0)
    assert segments(home) == before
    count = 2 * (size // 1000)
    with sparklog.open(home) as log:
        assert log.offsets("t") == {0: (0, count)}
        assert log.read("t", columns=["offset"]).read_all().num_rows == count
    late = stage(home, size)
    writer(home).abort(late, 1)
    assert chunk_files(home) == []
    assert segments(home) == before
    again = stage(home, size)
    writer(home).commit(again, 0)  # a replay after the abort: dropped, and swept
    assert chunk_files(home) == []
    assert segments(home) == before


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_batch_write_deletes_what_lost_attempts_staged(home: str, end: str) -> None:
    """Spark tells of no attempt that it killed or lost, nor of a task that it doesn't await."""
    rows = pa.RecordBatch.from_pydict({"value": ["x" * 1000] * 1000})
    options = parse({"path": home, "topic": "t", "compression.type": "none"})
    mine, other = (pickle.dumps(BatchWriter(options, SCHEMA, False)) for _ in range(2))
    pickle.loads(other).write(iter([rows]))
    [alive] = chunk_files(home)
    told, _ = (pickle.loads(mine).write(iter([rows])) for _ in range(2))
    assert len(chunk_files(home)) == 3
    if end == "commit":
        pickle.loads(mine).commit([told])
    else:
        pickle.loads(mine).abort([None])
    assert chunk_files(home) == [alive]
    assert not is_marked_open(LOCAL, home), "a broker may start on it"
    with sparklog.open(home) as log:
        assert log.offsets("t") == {0: (0, 1000 if end == "commit" else 0)}


@pytest.mark.parametrize("kind", [BatchWriter, StreamWriter])
def test_a_log_is_not_overwritten(home: str, kind: type[BatchWriter | StreamWriter]) -> None:
    with pytest.raises(InvalidRequestError, match=r"can't be overwritten: use mode\('append'\)"):
        kind(parse({"path": home, "topic": "t"}), SCHEMA, True)


def test_a_commit_to_a_store_deletes_lost_attempts_where_a_task_was_retried(home: str) -> None:
    """It costs a listing, so it is done for a query's first micro-batch and after a retry."""
    url = f"file://{home}"
    checkpoint = os.path.join(os.path.dirname(home), "checkpoint")
    options = parse({"path": url, "topic": "t", "checkpointLocation": checkpoint})
    rows = pa.RecordBatch.from_pydict({"value": ["x" * 1000] * 1000})
    for batch, attempt, lost in ((0, 0, 0), (1, 0, 1), (2, 1, 1)):
        Path(checkpoint, "offsets", str(batch)).write_text(f"v1\n{{}}\n{batch}")
        with open_logs.borrowed(options) as log:
            plan = plan_tasks(options, log, chunk_label("query", batch), ["value"])
        plan.run([rows], task=0)
        packed = plan.run([rows], task=0).pack()
        told = Staged(packed, plan.staging, query="query", attempt=attempt)
        StreamWriter(options, SCHEMA, False).commit([told], batch)
        names = [one.name for one in open_store(url).list() if "/staged-" in f"/{one.name}"]
        assert len(names) == batch + 1 + lost
    sink.close(url)
