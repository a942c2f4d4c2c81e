"""Forks of tiered logs: what is only remote can't be shared, and copies are made anew."""

import os
from pathlib import Path

import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError
from sparklog.log.admin import create_internal
from sparklog.log.topic_names import REMOTE_METADATA
from sparklog.logdir.home import commits_of
from sparklog.service import verify
from tests.log.forks import fork
from tests.tiered.logs import filled, value
from tests.tiered.test_local_start import shorten


def offsets(log: sparklog.Log) -> list[int]:
    column = log.read("t", columns=["offset"]).read_all().column("offset")
    return [int(offset) for offset in column.to_pylist()]


def test_what_is_only_remote_is_refused_or_left_out(tmp_path: Path, clock: ManualClock) -> None:
    new = tmp_path / "new"
    with filled(tmp_path / "log", clock, 30, local_retention_bytes="800") as log:
        create_internal(commits_of(log), REMOTE_METADATA, {})
        start = shorten(log, clock)
        words = rf"t-0: offsets \[0, {start}\) are in remote storage only"
        with pytest.raises(InvalidRequestError, match=words):
            fork(log.path, new, time_ms=clock(), clock=clock)
        assert os.listdir(tmp_path) == ["log"]
        made = fork(log.path, new, time_ms=clock(), leave_remote=True, clock=clock)
        assert made.offsets == {"t": {0: (start, 30)}}
        old = fork(
            log.path, tmp_path / "old", offsets={"t": {0: 3}}, leave_remote=True, clock=clock
        )
        assert old.offsets["t"][0][0] == old.offsets["t"][0][1] <= 3
        config, topic_id = log.topic("t").config, log.topic("t").id
    with sparklog.open(new, "rw", clock=clock) as log:
        assert log.topic("t").config == config
        assert log.topic("t").config.remote_storage_enable
        assert log.topic("t").id != topic_id  # so that it copies under names of its own
        assert offsets(log) == list(range(start, 30))
        values = log.read("t", columns=["value"]).read_all().column("value").to_pylist()
        assert values == [value(n) for n in range(start, 30)]
        assert not commits_of(log).state.local_starts
        assert REMOTE_METADATA not in commits_of(log).state.topics
        assert create_internal(commits_of(log), REMOTE_METADATA, {})
    assert verify(str(new)).ok
    assert verify(str(tmp_path / "old")).ok
