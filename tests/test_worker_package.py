"""Objects that Spark sends to executors, unpickled where sparklog is missing or another one."""

import copy
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyspark
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StructType

import sparklog
from sparklog import sink
from sparklog.sink import service_tasks
from sparklog.sink.options import parse as parse_sink
from sparklog.sink.row_staging import StagingTask
from sparklog.sink.writers import BatchWriter, StreamWriter
from sparklog.source.batch import BatchReader, FilteringBatchReader
from sparklog.source.options import parse as parse_source
from sparklog.source.schema import full_schema
from sparklog.source.stream import StreamReader

_LOAD = "import pickle, sys; pickle.loads(sys.stdin.buffer.read())"


def reader(kind: Any, path: str) -> Any:
    options = parse_source({"path": path, "subscribe": "t"}, streaming=kind is StreamReader)
    return kind(options, full_schema(headers=False))


def writer(kind: Any, path: str) -> Any:
    options = parse_sink({"path": path, "topic": "t"})
    return kind(options, StructType().add("value", "binary"), False)


def service_task(path: str) -> Any:
    """What Spark gets to pickle for `spark_map`."""
    held: list[Any] = []

    class Tasks:
        def map(self, function: Any) -> "Tasks":
            held.append(function)
            return self

        def collect(self) -> list[Any]:
            return []

    context = type("Context", (), {"parallelize": lambda self, jobs, count: Tasks()})()
    session = type("Session", (), {"_jsparkSession": None, "sparkContext": context})()
    list(service_tasks.spark_map(cast(Any, session))(os.path.basename, [path]))
    return held[0]


SENT: dict[str, Callable[[str], Any]] = {
    "read": lambda path: reader(BatchReader, path),
    "filtered": lambda path: reader(FilteringBatchReader, path),
    "readStream": lambda path: reader(StreamReader, path),
    "write": lambda path: writer(BatchWriter, path),
    "writeStream": lambda path: writer(StreamWriter, path),
    "sink": lambda path: StagingTask(cast(Any, path)),
    "service": service_task,
}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "log")
    yield path
    sink.close(path)


def loaded_elsewhere(pickled: bytes, *folders: Path) -> list[str]:
    """Unpickle in a Python that has pyspark and these folders; return the lines of its error."""
    path = os.pathsep.join(map(str, [*folders, Path(pyspark.__file__).parents[1]]))
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-s", "-c", _LOAD],
        input=pickled, env={"PYTHONPATH": path}, cwd="/", capture_output=True, timeout=120,
    )  # fmt: skip
    return done.stderr.decode().splitlines()


@pytest.mark.parametrize("name", SENT)
def test_a_python_without_sparklog_is_named_with_its_host(log: str, name: str) -> None:
    sent = CloudPickleSerializer().dumps(SENT[name](log))
    *_, text = loaded_elsewhere(sent)
    python = os.path.realpath(sys.executable)
    assert text.startswith(
        f"ImportError: Spark's Python worker on host {socket.gethostname()} runs {python}, which "
        f"can't load sparklog {sparklog.__version__}: No module named 'sparklog'. Install that "
    )


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("sparklog/__init__.py", "No module named 'sparklog.source'"),
        ("sparklog/source/batch.py", "Can't get attribute 'BatchReader' on "),
    ],
)
def test_another_version_of_sparklog_is_named(tmp_path: Path, file: str, why: str) -> None:
    other = tmp_path / file
    other.parent.mkdir(parents=True)
    other.touch()
    sent = CloudPickleSerializer().dumps(SENT["read"](str(tmp_path / "log")))
    *_, text = loaded_elsewhere(sent, tmp_path)
    assert f"can't load sparklog {sparklog.__version__}: {why}" in text


@pytest.mark.parametrize("name", SENT)
def test_what_is_sent_arrives(log: str, name: str) -> None:
    made = SENT[name](log)
    serializer: Any = CloudPickleSerializer()
    for found in (serializer.loads(serializer.dumps(made)), copy.copy(made)):
        assert type(found) is type(made)
        assert found.__dict__.keys() == made.__dict__.keys()
