"""waitForTopics: a query that is started before its log and its topics exist."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog import (
    InvalidRequestError,
    Log,
    OffsetOutOfRangeError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.checkpoint.spark_files.metadata_logs import rows_between, topics_of
from sparklog.clock import ManualClock
from sparklog.fs.files import LocalFile
from sparklog.fs.local import LocalFileSystem
from sparklog.opening import IMPORT_MARK, MARK, open_log
from sparklog.source import state_options
from sparklog.source.batch import BatchReader
from sparklog.source.offsets import waiting
from sparklog.source.options import parse
from sparklog.source.schema import full_schema
from sparklog.source.stream import LOOK_MS, StreamReader
from tests.source.test_replaced import at, values

Json = dict[str, Any]
WAITS = {"waitForTopics": "true"}
EARLIEST = {"startingOffsets": "earliest"}
LATEST = {"startingOffsets": "latest"}
T0 = 1_700_000_000_000
SELECTIONS = pytest.mark.parametrize(
    "selection",
    [{"subscribe": "t"}, {"subscribePattern": "t.*"}, {"assign": '{"t":[0]}'}],
    ids=["subscribe", "subscribePattern", "assign"],
)


class Query:
    """What Spark does with one source: `offset` is the checkpoint."""

    def __init__(self, path: str, **options: str) -> None:
        self.path, self.options = path, options
        self.offset: Json | None = None
        self.rows: list[tuple[int, str]] = []
        self.restart()

    def restart(self) -> None:
        self.clock = ManualClock(T0)
        given = {"subscribe": "t", **WAITS, **EARLIEST, **self.options}
        chosen = {"assign", "subscribePattern"} & given.keys()
        if chosen:
            del given["subscribe"]
        options = parse({"path": self.path, **given}, streaming=True)
        self.reader = StreamReader(options, full_schema(headers=False), self.clock)
        self.limit = self.reader.getDefaultReadLimit()

    def trigger(self, *, now: bool = False) -> "Query":
        """All micro-batches until nothing is new."""
        self.clock.advance(LOOK_MS)
        if now:
            self.reader.prepareForTriggerAvailableNow()
        for _ in range(9):
            start = self.reader.initialOffset() if self.offset is None else self.offset
            end = json.loads(json.dumps(self.reader.latestOffset(start, self.limit)))
            if end == self.offset:
                return self
            self.rows += values(self.reader, self.reader.partitions(start, end))
            self.reader.reportLatestOffset()
            self.offset = end
        raise AssertionError(f"it never comes to an end: {self.offset}")


@pytest.fixture(params=["log dir", pytest.param("bucket", marks=pytest.mark.deep)])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    return str(tmp_path / "log") if request.param == "log dir" else f"file://{tmp_path}/home"


def write(path: str, value: str, count: int, *, topic: str = "t", base_ms: int = T0) -> None:
    with sparklog.open(path, "rw", clock=lambda: base_ms) as log:
        log.create_topic(topic, if_not_exists=True)
        if count:
            append(log, value, count, topic)


def append(log: Log, value: str, count: int, topic: str = "t") -> None:
    log.append(topic, pa.table({"value": [value] * count}))


@SELECTIONS
@pytest.mark.parametrize("now", [False, True], ids=["", "AvailableNow"])
def test_waits_for_the_log_and_then_for_the_topic(
    path: str, selection: dict[str, str], now: bool, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(path, **selection)
    for _ in range(2):
        assert query.trigger(now=now).offset == waiting()
    write(path, "another", 3, topic="another")
    query.trigger(now=now)
    query.restart()
    assert query.trigger(now=now).offset == waiting() and query.rows == []
    with sparklog.open(path) as log:
        assert log.readers().num_rows == 0
    write(path, "x", 3)
    query.restart()
    query.trigger(now=now)
    write(path, "y", 2)
    query.trigger(now=now)
    query.restart()
    write(path, "z", 1)
    query.trigger(now=now)
    assert query.rows == [(n, "xxxyyz"[n]) for n in range(6)]
    assert query.offset == at(6)
    assert caplog.text.count("the query waits, because option waitForTopics is set: ") >= 2


@SELECTIONS
def test_in_one_run(path: str, selection: dict[str, str]) -> None:
    """Nothing that was looked at before the log existed hides it: a place can become a bucket."""
    query = Query(path, **selection).trigger()
    assert query.reader.reportLatestOffset() is None
    write(path, "x", 0, topic="another")
    query.trigger()
    write(path, "x", 3)
    assert query.trigger().rows == [(n, "x") for n in range(3)]
    assert query.reader.reportLatestOffset() == at(3)


@pytest.mark.parametrize("place", ["log", "file://log", "memory://topic-wait"])
def test_a_place_that_is_empty_becomes_a_log(tmp_path: Path, place: str) -> None:
    (tmp_path / "log").mkdir()
    path = place.replace("log", f"{tmp_path}/log", 1) if "memory" not in place else place
    query = Query(path).trigger()
    assert query.offset == waiting()
    write(path, "x", 3)
    assert query.trigger().rows == [(n, "x") for n in range(3)]


def test_a_log_that_is_being_made_of_another_one(tmp_path: Path) -> None:
    path = f"file://{tmp_path}/log"
    write(path, "x", 3)
    home, mark = tmp_path / "log" / MARK, tmp_path / "log" / IMPORT_MARK
    home.rename(mark)  # which comes first, and goes when the log is complete
    query = Query(path).trigger()
    assert query.trigger().offset == waiting()
    mark.rename(home)
    assert len(query.trigger().rows) == 3


class Watched(LocalFileSystem):
    """Calls `look` after each directory, file and rename."""

    look: Callable[[], None] | None = None

    def _looked(self) -> None:
        look, self.look = self.look, None
        if look is not None:
            look()
        self.look = look

    def open(self, path: str, *, create: bool = False, write: bool = False) -> LocalFile:
        file = super().open(path, create=create, write=write)
        self._looked()
        return file

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        self._looked()

    def rename(self, src: str, dst: str) -> None:
        super().rename(src, dst)
        self._looked()


@pytest.mark.parametrize("others", ["", ",{}/other"], ids=["one directory", "two"])
def test_a_log_and_a_topic_that_are_being_made(tmp_path: Path, others: str) -> None:
    """The query waits, or sees all partitions."""
    path = f"{tmp_path}/log{others.format(tmp_path)}"
    seen = []

    def look() -> None:
        try:
            start = Query(path, waitForTopics="false").reader.initialOffset()
            assert start == {"t": {"0": 0, "1": 0}}
            seen.append(True)
        except UnknownTopicError:
            seen.append(False)

    fs = Watched()
    fs.look = look
    with open_log(path, mode="rw", fs=fs) as log:
        log.create_topic("t", 2)
        append(log, "x", 1)
    fs.look = None
    assert seen == sorted(seen)
    assert seen.count(True) > 3 and seen.count(False) > 3


def test_a_look_a_second(path: str) -> None:
    query = Query(path)
    assert query.reader.initialOffset() == waiting()
    write(path, "x", 3)
    query.clock.advance(LOOK_MS - 1)
    assert query.reader.latestOffset(waiting(), query.limit) == waiting()
    query.clock.advance(1)
    assert query.reader.latestOffset(waiting(), query.limit) == at(0)


def test_the_log_appears_between_the_calls_of_one_micro_batch(path: str) -> None:
    """Spark asks for the initial offset again when it plans the first one."""
    query = Query(path)
    assert query.reader.initialOffset() == waiting()
    write(path, "x", 3)
    query.clock.advance(LOOK_MS)
    assert query.reader.initialOffset() == at(0)
    assert query.reader.partitions(at(0), waiting()) == []
    query.offset = waiting()
    assert query.trigger().rows == [(n, "x") for n in range(3)]


def test_a_micro_batch_that_ends_the_wait_is_repeated(path: str) -> None:
    """Its end is in the checkpoint, its commit isn't."""
    query = Query(path, **LATEST).trigger()
    write(path, "before", 3)
    query.clock.advance(LOOK_MS)
    end = query.reader.latestOffset(waiting(), query.limit)
    assert end == at(3)
    query.restart()
    write(path, "after", 2)
    assert query.reader.partitions(waiting(), end) == []
    query.offset = end
    assert query.trigger().rows == [(3, "after"), (4, "after")]


def test_all_that_is_named_is_waited_for(path: str) -> None:
    query = Query(path, subscribe="t,u").trigger()
    write(path, "x", 3)
    assert query.trigger().rows == []
    write(path, "y", 2, topic="u")
    assert query.trigger().rows == [(0, "x"), (1, "x"), (2, "x"), (0, "y"), (1, "y")]
    query = Query(path, assign='{"t":[0,1]}').trigger()
    assert query.trigger().offset == waiting()
    with sparklog.open(path, "rw") as log:
        log.alter_topic("t", partitions=2)
    assert len(query.trigger().rows) == 3


def test_topics_that_match_later_join_from_their_beginning(path: str) -> None:
    query = Query(path, subscribePattern="t.*", **LATEST).trigger()
    write(path, "x", 3)
    assert query.trigger().rows == []
    write(path, "y", 2, topic="t2")
    assert query.trigger().rows == [(0, "y"), (1, "y")]


def test_what_comes_after_available_now_was_triggered_waits(path: str) -> None:
    query = Query(path)
    query.reader.prepareForTriggerAvailableNow()
    write(path, "x", 3)
    assert query.reader.initialOffset() == waiting()
    query.clock.advance(LOOK_MS)
    assert query.reader.latestOffset(waiting(), query.limit) == waiting()
    query.restart()
    assert len(query.trigger(now=True).rows) == 3


JSON_START = '{"t":{"0":2}}'


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (EARLIEST, 0), (LATEST, 5), ({"startingOffsets": JSON_START}, 2),
        ({"startingTimestamp": str(T0 + 1)}, 3), ({"startingTimestamp": str(T0 + 9)}, 5),
        ({"startingOffsetsByTimestamp": f'{{"t":{{"0":{T0 + 1}}}}}'}, 3),
    ],
)  # fmt: skip
def test_where_it_starts(path: str, start: dict[str, str], first: int) -> None:
    query = Query(path, **{"startingOffsets": "earliest", **start}).trigger()
    write(path, "x", 3)
    write(path, "x", 2, base_ms=T0 + 1)
    query.trigger()
    write(path, "x", 1, base_ms=T0 + 1)
    assert [offset for offset, _ in query.trigger().rows] == list(range(first, 6))


def test_an_empty_topic_is_no_error_by_timestamp(path: str) -> None:
    """By default a partition without a record that young is an error."""
    query = Query(path, startingTimestamp=str(T0)).trigger()
    write(path, "x", 0)
    assert query.trigger().offset == at(0)
    write(path, "x", 1)
    assert query.trigger().rows == [(0, "x")]


def test_starting_offsets_that_do_not_fit_are_refused_when_the_topic_is_there(path: str) -> None:
    query = Query(path, startingOffsets='{"t":{"0":2,"1":0}}').trigger()
    write(path, "x", 3)
    with pytest.raises(InvalidRequestError, match="t-1 is not in the log or not selected"):
        query.trigger()
    query = Query(path, startingOffsets='{"t":{"0":9}}')
    with pytest.raises(InvalidRequestError, match=r"t-0 ends at 3, not 9.*failOnDataLoss=false"):
        query.trigger()


def test_a_topic_that_is_made_again_is_reported_as_ever(path: str) -> None:
    query = Query(path).trigger()
    write(path, "x", 3)
    query.trigger()
    with sparklog.open(path, "rw") as log:
        log.delete_topic("t")
        query.trigger()
        log.create_topic("t")
        append(log, "new", 2)
    with pytest.raises(TopicReplacedError, match="t-0 was deleted and created again"):
        query.trigger()


@pytest.mark.parametrize("path", ["log dir"], indirect=True)
def test_a_log_that_was_read_is_not_waited_for(path: str) -> None:
    query = Query(path).trigger()
    write(path, "x", 3)
    query.trigger()
    write(path, "y", 1)
    away = shutil.move(path, f"{path}-away")
    query.restart()
    for now in (False, True):
        with pytest.raises(UnknownTopicError, match=r"does not exist.* restore the log") as told:
            query.trigger(now=now)
        assert "waitForTopics=true" not in str(told.value)
    shutil.move(away, path)
    assert query.trigger().rows[3:] == [(3, "y")]
    shutil.rmtree(path)
    write(path, "z", 1)  # another log
    query.restart()
    with pytest.raises(OffsetOutOfRangeError, match="the log ends at 1"):
        query.trigger()
    query.offset = None  # another checkpoint
    assert query.trigger().rows[4:] == [(0, "z")]


def test_offsets_of_a_checkpoint_that_waited(path: str) -> None:
    """For tools, which show how far a query is."""
    assert topics_of(json.dumps(waiting())) == {}
    assert rows_between(json.dumps(waiting()), json.dumps(at(3))) is None


def test_the_option_is_taken_away_while_the_query_waits(path: str) -> None:
    query = Query(path).trigger()
    query.options["waitForTopics"] = "false"
    query.restart()
    with pytest.raises(UnknownTopicError, match="start the writer first, or set option waitFor"):
        query.trigger()
    write(path, "x", 3)
    query.restart()
    assert len(query.trigger().rows) == 3


def read(path: str, **options: str) -> None:
    given = parse({"path": path, "subscribe": "t", **options}, streaming=False)
    BatchReader(given, full_schema(headers=False)).partitions()


def follow(path: str, **options: str) -> None:
    given = parse({"path": path, "subscribe": "t", **options}, streaming=True)
    StreamReader(given, full_schema(headers=False)).initialOffset()


@pytest.mark.parametrize("call", [read, follow])
def test_advice_of_a_reader(
    path: str, call: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path as it was typed; nothing is to be created by a reader."""
    monkeypatch.chdir(tmp_path)
    advice = {
        read: "start the writer first, and repeat the query when the writer has created the topic",
        follow: "start the writer first, or set option waitForTopics=true to wait for it",
    }[call]
    with pytest.raises(UnknownTopicError) as told:
        call("missing/log")
    assert str(told.value) == (
        f"missing/log ({tmp_path}/missing/log) does not exist. Check the path; if it is right, "
        f"{advice}"
    )
    write(path, "x", 0, topic="u")
    with pytest.raises(UnknownTopicError) as told:
        call(path)
    assert str(told.value) == (
        f"t not in {path}, whose topics are u. Check the name; if it is right, {advice}"
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UnknownTopicError) as told:
        call(f"file://{empty}")
    assert str(told.value) == (
        f"t not in file://{empty}, which has no topics. Check the path; if it is right, {advice}"
    )


@pytest.mark.parametrize("call", [read, follow])
def test_the_advice_helps(path: str, call: Callable[..., None]) -> None:
    with pytest.raises(UnknownTopicError):
        call(path)
    if call is follow:
        follow(path, **WAITS, **EARLIEST)
    write(path, "x", 1)
    call(path)


def test_requests_that_are_refused(path: str) -> None:
    given = {"path": path, "subscribe": "t", **WAITS}
    with pytest.raises(InvalidRequestError, match="startingOffsets=earliest to read all of their"):
        parse(given, streaming=True)
    parse({**given, **EARLIEST}, streaming=True)
    parse({**given, **LATEST}, streaming=True)
    with pytest.raises(InvalidRequestError, match="option waitForTopics is for streams"):
        parse(given, streaming=False)
    with pytest.raises(InvalidRequestError, match="no meaning for a checkpoint's state"):
        state_options.parse({"path": path, "stateOperator": "0", **WAITS}, streaming=True)
    file = Path(path.removeprefix("file://")).with_name("file")
    file.write_text("")
    with pytest.raises(InvalidRequestError, match="is a file: give the log's directory"):
        Query(str(file)).trigger()


def test_a_replayed_wait_says_so_once(path: str, caplog: pytest.LogCaptureFixture) -> None:
    query = Query(path)
    with caplog.at_level(logging.WARNING, "sparklog.source"):
        for _ in range(3):
            query.trigger()
    assert len([r for r in caplog.records if "the query waits" in r.message]) == 1
