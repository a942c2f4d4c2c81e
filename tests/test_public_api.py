"""The public surface: names that users import, and what an import costs."""

import inspect
import pickle
import subprocess
import sys

import pytest

import sparklog
from sparklog import errors

NAMES = {
    "BatchConflictError", "CommitUnknownError", "DataCorruptionError", "FencedError",
    "GroupNotEmptyError", "InvalidRequestError", "Log", "LogLockedError", "LogReplacedError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError", "PartitionOfflineError", "RecordTooLargeError", "SparklogError",
    "StorageUnavailableError", "TopicReplacedError", "UnknownTopicError", "UnsupportedVersionError",
    "enable", "open", "register", "spark_conf",
}  # fmt: skip
METHODS = {
    "create_topic": ["name", "partitions", "config"],
    "alter_topic": ["name", "partitions", "config"],
    "delete_topic": ["name"],
    "topics": [],
    "topic": ["name"],
    "append": ["topic", "data", "partition", "producer"],
    "read": ["topic", "partitions", "start", "end", "isolation", "columns", "follow", "group"],
    "offsets": ["topic"],
    "offsets_for_times": ["topic", "when"],
    "delete_records": ["topic", "offsets"],
    "commits": ["writer"],
    "commit_offsets": ["group", "offsets"],
    "readers": [],
    "delete_reader": ["group", "partitions"],
    "move_partition": ["topic", "partition", "to"],
    "moves": [],
    "cancel_moves": ["topic", "partition"],
    "reset_reader": ["group", "to", "topics", "shift_by", "offsets"],
    "groups_at_work": [],
    "commit": ["chunks"],
    "committed": ["identity"],
    "reset": ["writer", "batch"],
    "close": [],
}
KINDS = [k for k in vars(errors).values() if inspect.isclass(k) and issubclass(k, Exception)]


def test_exported_names():
    assert set(sparklog.__all__) == NAMES
    assert all(hasattr(sparklog, name) for name in NAMES)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_of_a_log(name):
    method = getattr(sparklog.Log, name)
    parameters = list(inspect.signature(method).parameters)[1:]
    assert parameters[: len(METHODS[name])] == METHODS[name]
    assert inspect.getdoc(method), f"Log.{name} has no docstring"


def test_every_error_is_exported_and_in_the_tree():
    for kind in KINDS:
        assert kind.__name__ in sparklog.__all__
        assert kind.__name__ in (errors.__doc__ or "")
        assert issubclass(kind, errors.SparklogError)


@pytest.mark.parametrize("path", [None, "/data/log"])
@pytest.mark.parametrize("kind", KINDS)
def test_errors_survive_pickling(kind, path):
    """Spark carries an executor's errors to the driver as pickles."""
    extra = {
        errors.DataCorruptionError: {"path": "p", "position": 7, "first": 1, "end": 3},
        errors.PartitionOfflineError: {"path": "p", "first": 1, "end": 3},
        errors.OffsetOutOfRangeError: {"offset": 1, "start": 2, "end": 3},
        errors.CommitUnknownError: {"position": 4, "attempt": "a"},
    }.get(kind, {})
    if path is not None or "path" not in extra:
        extra = {**extra, "path": path}
    error = kind("what happened", **extra)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.__dict__) == (str(error), error.__dict__)
    assert again.path == extra["path"]
    assert again.retriable == (kind in (
        errors.LogLockedError, errors.StorageUnavailableError, errors.CommitUnknownError
    ))


def test_import_brings_neither_spark_nor_pandas():
    code = (
        "import sys, sparklog; "
        "print(sorted({'pyarrow', 'numpy'} & set(sys.modules)), end=''); "
        "sparklog.Log; "
        "print(sorted({'pyspark', 'py4j', 'pandas', 'fsspec'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[][]"


def test_names_that_come_when_they_are_asked_for():
    assert sparklog.Log is sparklog.log.log.Log
    with pytest.raises(AttributeError, match="no attribute 'Logg'"):
        sparklog.Logg
