"""Contract tests of `sparklog.storage.home.Home`. Each home has a subclass.

    class TestMine(HomeContract):
        @pytest.fixture
        def path(self) -> str: ...      # of a log that does not exist yet

The fixture `open_log` opens that log again, in mode "r" or "rw", as another process would. A home
that `sparklog.open` can't open overrides it.

The parts of a home (view, commits, groups, lease) have their own contracts.
"""

import contextlib
import pickle
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, LogReplacedError, SparklogError
from sparklog.log.admin import create_topic, drop_topic
from sparklog.log.commit import commit
from sparklog.log.log import Log, home_of
from sparklog.opening import open_log
from sparklog.storage.chunk_table import ChunkTable
from sparklog.storage.commits import Chunk
from sparklog.storage.home import Home
from sparklog.storage.staging import INLINE_BYTES, Framing, chunk_label

Open = Callable[[str], Log]
KEY = TopicPartition("t", 0)
LABEL = chunk_label("w", 0)
LARGE = INLINE_BYTES  # bytes of a value: its task stages


def values_of(log: Log) -> list[bytes]:
    """Return the values of topic t that a reader sees now."""
    found: list[bytes] = log.read("t").read_all()["value"].to_pylist()
    return found


def stage(home: Home, *tasks: bytes) -> list[Chunk]:
    """Stage a value in each of several tasks, which got the staging from the driver."""
    staging = home.staging()
    topic = home.known_topics()["t"]
    tables = []
    for number, value in enumerate(tasks):
        of_task = pickle.loads(pickle.dumps(staging))  # noqa: S301
        of_task.check()
        stager = of_task.stager(Framing(), label=f"{LABEL}-{number}", task=number)
        stager.add(topic, pa.record_batch({"value": [value]}), partition=0)
        tables.append(ChunkTable.unpack(ChunkTable.of(stager.finish()).pack()))
    return list(staging.gathered(tables))


class ReadingContract:
    """Requirements on a handle that is open for reading, also on a handle of an archive.

    The fixture `reader` is such a handle, of a log with topic "t".
    """

    def test_a_handle_for_reading_changes_nothing(self, reader: Log) -> None:
        home = home_of(reader)
        for change in (
            lambda: home.commits,
            home.staging,
            lambda: home.stager(Framing()),
            home.service_lease,
            lambda: home.give_up(None, None, dry_run=True),
            lambda: reader.create_topic("u"),
            lambda: reader.append("t", pa.table({"value": [b"a"]})),
        ):
            with pytest.raises(InvalidRequestError, match="open for reading"):
                change()
        assert home.view.topics().keys() == {"t"}
        assert home.groups.readers().groups == []
        assert home.groups.positions("g") == {}
        assert home.endpoint_lease({}).published() is None
        home.close()
        home.close()

    def test_abandon_has_no_effect_on_a_reader(self, reader: Log) -> None:
        home = home_of(reader)
        assert home.is_current()
        home.abandon("another log lies here")
        assert home.lost is None
        assert reader.topics().keys() == {"t"}


class HomeContract(ReadingContract):
    """Contract tests of a log's home: the engine's requirements.

    A subclass provides the fixture `path`, the path or URL of a log that does not exist yet.

    Examples:
        >>> import pytest
        >>> from sparklog.testing import HomeContract
        >>> class TestLogDir(HomeContract):
        ...     @pytest.fixture
        ...     def path(self, tmp_path):
        ...         return str(tmp_path / "log")
    """

    @pytest.fixture
    def reader(self, open_log: Open) -> Log:
        """A handle for reading."""
        open_log("rw").create_topic("t")
        return open_log("r")

    @pytest.fixture
    def open_log(self, path: str) -> Iterator[Open]:
        """Open the log at `path`; all handles are closed after the test."""
        with contextlib.ExitStack() as handles:
            yield lambda mode: handles.enter_context(open_log(path, mode=mode))

    def test_all_handles_are_of_one_log(self, open_log: Open) -> None:
        one, two = home_of(open_log("rw")), home_of(open_log("rw"))
        assert one.identity == two.identity
        assert one.is_current()
        assert two.is_current()
        assert one.lost is None

    def test_topics_that_others_change_are_known_after_a_look(self, open_log: Open) -> None:
        one, two = home_of(open_log("rw")), home_of(open_log("rw"))
        assert one.known_topics() == {}
        create_topic(two.commits, "t", 2, {"retention.ms": "5"}, False)
        create_topic(two.commits, "u", 1, {}, False)
        one.commits.catch_up()
        topics = one.known_topics()
        assert topics == two.known_topics()
        assert {name: topic.partitions for name, topic in topics.items()} == {"t": 2, "u": 1}
        assert topics["t"].config.retention_ms == 5
        state = one.commits.state.topics["t"]
        assert one.describe("t", state) == topics["t"] == one.view.topics()["t"]
        drop_topic(two.commits, "u")
        one.commits.catch_up()
        assert list(one.known_topics()) == ["t"]

    def test_readers_see_topics_that_others_create(self, open_log: Open) -> None:
        commits, view = home_of(open_log("rw")).commits, home_of(open_log("r")).view
        assert view.topics() == {}
        create_topic(commits, "t", 2, {}, False)
        assert view.partitions("t") == [0, 1]
        create_topic(commits, "u", 1, {}, False)
        topic_id = view.of_partition("u", 0, lambda segments: segments.topic_id)
        create_topic(commits, "w", 1, {}, False)
        assert view.topic_id("w", 0)
        topics = view.topics()
        assert list(topics) == ["t", "u", "w"]
        assert topic_id == topics["u"].id

    def test_readers_see_a_topic_that_others_create_again(self, open_log: Open) -> None:
        commits, view = home_of(open_log("rw")).commits, home_of(open_log("r")).view
        create_topic(commits, "t", 1, {}, False)
        before = view.of_partition("t", 0, lambda segments: segments)
        assert view.topics()["t"].id == before.topic_id
        drop_topic(commits, "t")
        create_topic(commits, "t", 1, {}, False)
        assert view.topics()["t"].id != before.topic_id
        now = view.of_partition("t", 0, lambda segments: segments)
        assert now is not before
        assert now.topic_id == view.topics()["t"].id

    def test_what_tasks_stage_shows_when_it_is_committed(self, open_log: Open) -> None:
        one, reader = open_log("rw"), open_log("r")
        one.create_topic("t")
        large = b"x" * LARGE
        chunks = stage(home_of(one), b"small", large, b"last")
        assert any(chunk.data is None for chunk in chunks)  # so much travels with no report
        assert values_of(reader) == []
        commit(home_of(one).commits, chunks)
        assert values_of(reader) == values_of(open_log("r")) == [b"small", large, b"last"]
        assert home_of(one).sweep_staged("w", 0) >= 0
        assert values_of(open_log("r")) == [b"small", large, b"last"]

    def test_what_was_discarded_never_shows(self, open_log: Open) -> None:
        log = open_log("rw")
        log.create_topic("t")
        chunks = stage(home_of(log), b"small", b"x" * LARGE)
        home_of(log).staging().discard(chunks)
        assert values_of(log) == []
        again = stage(home_of(log), b"y" * LARGE)  # under the same label: the attempt after it
        commit(home_of(log).commits, again)
        assert values_of(open_log("r")) == [b"y" * LARGE]

    def test_a_small_micro_batch_stays_in_memory(self, open_log: Open) -> None:
        home = home_of(open_log("rw"))
        create_topic(home.commits, "t", 1, {}, False)
        topic = home.known_topics()["t"]
        rows = pa.record_batch({"value": [b"a", b"b"]})
        for stager in (home.stager(Framing()), home.staging().memory_stager(Framing(), spread="s")):
            stager.add(topic, rows)
            (chunk,) = stager.finish()
            assert (chunk.data is not None, chunk.records) == (True, 2)

    def test_readers_commit_their_positions_by_themselves(self, open_log: Open) -> None:
        writer = open_log("rw")
        writer.create_topic("t")
        home = home_of(open_log("r"))
        home.groups.commit("g", {KEY: 3}, now_ms=1, host="h")
        assert home_of(writer).groups.positions("g")[KEY].offset == 3
        assert home.ledger.exists
        assert home.ledger.end == home_of(writer).commits.position

    def test_who_is_told_to_let_go_writes_no_more(self, open_log: Open) -> None:
        one, two = open_log("rw"), open_log("rw")
        one.create_topic("t")
        position = home_of(one).commits.position
        home_of(one).abandon("another log lies here")
        assert home_of(one).lost == "another log lies here"
        with pytest.raises(LogReplacedError, match="another log lies here"):
            one.append("t", pa.table({"value": [b"a"]}))
        assert home_of(two).commits.catch_up() == position
        two.append("t", pa.table({"value": [b"b"]}))
        one.close()
        assert values_of(two) == [b"b"]

    def test_a_closed_handle_is_closed_once_and_for_all(self, open_log: Open) -> None:
        one, two = open_log("rw"), open_log("rw")
        one.create_topic("t")
        home = home_of(one)
        home.close()
        home.close()
        assert not home.is_current()
        with pytest.raises(SparklogError):
            one.append("t", pa.table({"value": [b"a"]}))
        two.append("t", pa.table({"value": [b"b"]}))
        assert values_of(two) == [b"b"]

    def test_nothing_is_offline_nor_given_up(self, open_log: Open) -> None:
        log = open_log("rw")
        log.create_topic("t", 2)
        for dry_run in (True, False):
            assert home_of(log).give_up(None, None, dry_run=dry_run) == []
        assert not home_of(log).commits.offline

    def test_its_service_is_one(self, open_log: Open) -> None:
        one, two = (home_of(open_log("rw")).service_lease() for _ in range(2))
        assert one.acquire()
        assert not two.acquire()
        one.release()
        assert two.acquire()
        two.release()

    def test_one_of_its_endpoints_coordinates(self, open_log: Open) -> None:
        open_log("rw").create_topic("t")
        said = {"endpoint": "h:9092", "node_id": 1}
        one, two = (home_of(open_log(mode)).endpoint_lease(said) for mode in ("r", "rw"))
        assert one.acquire()
        assert not two.acquire()
        assert said.items() <= two.holder().items()
        assert two.describe().startswith("the endpoint of process")
        one.release()
        assert two.acquire()
        two.release()
