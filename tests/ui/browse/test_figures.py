"""Topics in figures: what one topic costs, and that it says what the list of all says."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.log.log import Log, view_of
from sparklog.log.partition_reader import reader_of
from sparklog.storage.staging import Framing
from sparklog.storage.view import TopicInfo
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.object_store.store import StoredObject
from sparklog.ui.browse import figures
from sparklog.ui.browse.figures import Figures


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine leaves no size out."""
    monkeypatch.setattr(figures, "CHECK_MS", 240_000)


@pytest.fixture(params=["directory", "store"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    path = str(tmp_path / "log") if request.param == "directory" else f"file://{tmp_path}/home"
    with sparklog.open(path, "rw") as log:
        for name in ("a", "b"):
            log.create_topic(name, 2)
            log.append(name, pa.table({"value": ["x"] * 5}), partition=1)
            log.append(name, pa.table({"value": ["x"] * 2}), partition=0)
            log.commit_offsets("g", {name: {0: 0, 1: 2}})
            log.commit_offsets("h", {name: {1: 1}})
        yield log


def test_one_topic_is_looked_at_alone(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    plain = figures.partition_figures

    def counted(
        log: Log, info: TopicInfo, partition: int, span: tuple[int, int]
    ) -> figures.PartitionFigures:
        listed.append(info.name)
        return plain(log, info, partition, span)

    monkeypatch.setattr(figures, "partition_figures", counted)
    known = Figures()
    one = known.topic(log, "a")
    assert (one.records, one.readers, one.lag, one.rate) == (7, 2, 5, None)
    assert listed == ["a", "a"]
    assert one.size_bytes == {topic.name: topic for topic in known.topics(log)}["a"].size_bytes
    log.append("a", pa.table({"value": ["x"] * 5}), partition=0)
    again = known.topic(log, "a")
    assert again.records == 12
    assert again.rate is not None
    assert again.rate > 0
    with pytest.raises(sparklog.UnknownTopicError):
        known.topic(log, "c")


def test_an_objects_time_is_asked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Extents of many partitions lie in one object, and without timestamps are as old as it is."""
    path = f"file://{tmp_path}/home"
    asked: list[str] = []
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 8)
        stager = log.stager(Framing())
        for partition in range(8):
            for batch in pa.table({"value": ["x"]}).to_batches():
                stager.add(log.topic("t"), batch, partition=partition)
        log.commit(stager.finish())
        plain = ObjectStore.list

        def counted(store: ObjectStore, prefix: str) -> list[StoredObject]:
            asked.append(prefix)
            return plain(store, prefix)

        monkeypatch.setattr(ObjectStore, "list", counted)
        times = {reader_of(view_of(log), "t", p).segments.modified_ms(0) for p in range(8)}
    assert len(times) == len(asked) == 1
