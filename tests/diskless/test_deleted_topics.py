"""Deleted topics of a log in a store: given back whole, or given up, by entries."""


import pyarrow as pa
import pytest

import sparklog
from sparklog import InvalidRequestError, Log, UnknownTopicError
from sparklog.clock import pause
from sparklog.service import Service, verify
from sparklog.tiered.target import open_store

DAY_MS = 24 * 3_600_000
OPTIONS = {"diskless.merge.interval.ms": 1, "service.remote.sweep.interval.ms": 0}


def filled(log: Log, delay_ms: int = DAY_MS) -> None:
    log.create_topic("t", 2, {"file.delete.delay.ms": delay_ms})
    for number in range(12):
        log.append("t", pa.table({"value": [b"%d" % number * 200]}), number % 2)
    log.delete_records("t", {1: 1})


def rows(log: Log) -> list[tuple[int, int, bytes]]:
    table = log.read("t", columns=["partition", "offset", "value"]).read_all()
    return list(zip(*table.to_pydict().values(), strict=True))


def serve(url: str) -> list[str]:
    """One round of everything; what it swept, and said."""
    report = Service(url, options=OPTIONS).run_once()
    assert not report.errors
    return report.notes


def test_it_comes_back_whole_whatever_a_service_swept(url: str) -> None:
    with sparklog.open(url, "rw") as log:
        filled(log)
        serve(url)  # segments, and inline data that are cut
        log.append("t", pa.table({"value": [b"inline"]}), 1)
        before, info, spans = rows(log), log.topic("t"), log.offsets("t")
        log.delete_topic("t")
        with pytest.raises(InvalidRequestError, match="contain the original name"):
            log.undelete_topic("t", new_name="u")
        for _ in range(2):
            serve(url)
        log.undelete_topic("t")
        assert (log.topic("t"), rows(log), log.offsets("t")) == (info, before, spans)
        assert rows(sparklog.open(url)) == before
        assert verify(url).ok


def test_a_service_gives_it_up(url: str) -> None:
    with sparklog.open(url, "rw") as log:
        filled(log, delay_ms=1)
        topic_id = log.topic("t").id
        log.delete_topic("t")
        pause(20)
        notes = serve(url)
        assert any(note.startswith(f"topic t (id {topic_id})") for note in notes)
        with pytest.raises(UnknownTopicError, match="can be restored"):
            log.undelete_topic("t")
        assert log.deleted_topics() == []
        serve(url)
        names = [one.name for one in open_store(url).list()]
        assert not [name for name in names if name.startswith(("t-", "staged-"))]
