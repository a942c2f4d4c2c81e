"""What a method that Spark calls raises; tests/spark/test_error_texts.py is with Spark."""

import copy
import logging
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator

import pytest

from sparklog.errors import OffsetOutOfRangeError, SparklogError, UnknownTopicError
from sparklog.source.stream import RefusedStreamReader
from sparklog.spark_errors import brief, in_driver, in_worker
from tests.paths import ROOT

HIDE = "SPARK_HIDE_TRACEBACK"


@in_worker
class Reader:
    def fails(self) -> None:
        try:
            raise OSError("the cause")
        except OSError as error:
            raise UnknownTopicError("no topic t") from error

    def yields(self) -> Iterator[int]:
        yield 1
        self.fails()

    def has_a_bug(self) -> None:
        self._bug()

    def _bug(self) -> None:
        raise ZeroDivisionError


def frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_chain_and_frames_are_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG, "sparklog.spark"),
        pytest.raises(UnknownTopicError, match=r"^no topic t$") as told,
    ):
        Reader().fails()
    assert frames(told.value)[1:] == ["call"]
    assert told.value.__cause__ is None and told.value.__context__ is None
    assert "OSError: the cause" in caplog.text and "in fails" in caplog.text
    assert HIDE not in os.environ  # only in a worker of Spark's


def test_errors_of_an_iterator_too() -> None:
    values = Reader().yields()
    assert next(values) == 1
    with pytest.raises(UnknownTopicError) as told:
        next(values)
    assert frames(told.value)[1:] == ["_iterated"] and told.value.__cause__ is None


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError) as told:
        Reader().has_a_bug()
    assert frames(told.value)[-2:] == ["has_a_bug", "_bug"]


def test_a_worker_leaves_out_the_frames_of_spark_for_this_error_alone() -> None:
    """The handler is Spark's; the process is one that runs a module of pyspark."""
    code = (
        "import io, sys; from types import SimpleNamespace as Of\n"
        "from pyspark.util import handle_worker_exception\n"
        "from tests.test_spark_errors import Reader\n"
        "sys.modules['__main__'].__spec__ = Of(name='pyspark.daemon')\n"
        "for call in (Reader().has_a_bug, Reader().fails):\n"
        "    out = io.BytesIO()\n"
        "    try: call()\n"
        "    except Exception as error: handle_worker_exception(error, out)\n"
        "    print(out.getvalue()[8:].decode(), end='---')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    bug, told, _ = done.stdout.split("---")
    assert bug.startswith("Traceback") and "in _bug" in bug
    assert told == "sparklog.errors.UnknownTopicError: no topic t\n"


def test_the_error_of_foreach_batch_is_its_own_cause() -> None:
    @in_driver
    def write() -> None:
        Reader().fails()

    with pytest.raises(UnknownTopicError) as told:
        write()
    cause = told.value.__cause__
    assert type(cause) is UnknownTopicError and str(cause) == "no topic t"
    assert cause.__traceback__ is None and cause.__cause__ is None
    assert "".join(traceback.format_exception(told.value)).startswith(
        "sparklog.errors.UnknownTopicError: no topic t\n"
    )


def test_every_error_can_be_copied() -> None:
    error = OffsetOutOfRangeError("no", offset=1, start=2, end=3, path="p")
    again = copy.copy(error)
    assert (str(again), again.offset, again.path) == ("no", 1, "p")


def test_a_refused_stream_raises_whichever_call_is_the_first() -> None:
    reader = RefusedStreamReader(SparklogError("no"))
    for call in (
        reader.initialOffset, reader.getDefaultReadLimit, reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset({}, None), lambda: reader.partitions({}, {}),
        lambda: pickle.loads(pickle.dumps(reader)).read(None),
    ):  # fmt: skip
        with pytest.raises(SparklogError, match=r"^no$"):
            call()
    reader.stop()  # which Spark calls at the end


WORKERS = """[STREAM_FAILED] Query terminated: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/lib/pandas.py", line 3, in apply
    return function(row)
           ^^^^^^^^^^^^^
  File "/home/me/orders.py", line 12, in total
    return {}["euro"]
KeyError: 'euro'
 SQLSTATE: 38000
=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (WORKERS, "KeyError: 'euro' (/home/me/orders.py, line 12)"),
        ("[NO_COLUMN] No column n.\n'Project [n]\n+- Relation", "[NO_COLUMN] No column n."),
        ("", ""),
    ],
)
def test_an_error_in_a_line(text: str, line: str) -> None:
    assert brief(ValueError(text)) == line
