"""`every_crash` finds what a piece of work that syncs too little loses."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.fs import read_bytes, write_durably
from sparklog.testing.crashes import every_crash
from sparklog.testing.crashfs import CrashFS

CLOCK = ManualClock()


def careless(fs: CrashFS) -> None:
    with fs.open("/a", create=True) as file:
        file.pwrite(b"kept?", 0)


def careful(fs: CrashFS) -> None:
    write_durably(fs, "/a", b"kept")


def there(fs: CrashFS) -> bytes | None:
    return read_bytes(fs, "/a") if fs.exists("/a") else None


def test_what_was_not_synced_is_lost_in_some() -> None:
    after = {there(crash.fs) for crash in every_crash(careless, seeds=5) if crash.finished}
    assert {None, b"kept?"} <= after
    during = {there(crash.fs) for crash in every_crash(careless)}
    assert b"" in during  # between the two calls


def test_what_was_synced_is_there_in_all() -> None:
    found = list(every_crash(careful, seeds=5))
    assert {there(crash.fs) for crash in found} == {None, b"kept"}
    assert {there(crash.fs) for crash in found if crash.finished} == {b"kept"}
    assert len({crash.how for crash in found}) == len(found)


def test_it_begins_where_it_is_told_and_goes_on() -> None:
    fs = CrashFS()
    careful(fs)
    crashes = every_crash(careless, fs=fs)
    assert all(there(crash.fs) in (b"kept", b"kept?") for crash in crashes)
    assert there(fs) == b"kept?"
    assert fs.on_call is None


def test_what_the_work_raises() -> None:
    def fails(fs: CrashFS) -> None:
        raise KeyError("mine")

    fs = CrashFS()
    with pytest.raises(KeyError, match="mine"):
        next(every_crash(fails, fs=fs))
    assert fs.on_call is None


def pipeline(fs: CrashFS) -> None:
    """Read `in`, write its doubles to `out`, once each: as docs/testing.md has it."""
    with sparklog.open("/log", "rw", fs=fs, clock=CLOCK) as log:
        log.create_topic("out", if_not_exists=True)
        done = log.offsets("out")[0][1]
        rows = log.read("in", start={0: done}).read_all()
        for n in range(0, len(rows), 2):
            values = [value * 2 for value in rows["value"].to_pylist()[n : n + 2]]
            log.append("out", pa.table({"value": values}))


def test_a_pipeline() -> None:
    fs = CrashFS()
    with sparklog.open("/log", "rw", fs=fs, clock=CLOCK) as log:
        log.create_topic("in")
        log.append("in", pa.table({"value": [b"1", b"2", b"3", b"4", b"5"]}))
    count = 0
    for crash in every_crash(pipeline, fs=fs):
        count += 1
        pipeline(crash.fs)  # the next run
        with sparklog.open("/log", fs=crash.fs) as log:
            values = log.read("out").read_all()["value"].to_pylist()
        assert values == [b"11", b"22", b"33", b"44", b"55"], crash.how
    assert count > 100
