"""`every_crash` finds what a piece of work that syncs too little loses.

A whole log under it: tests/test_pytest_plugin.py runs what docs/testing.md has.
"""

from __future__ import annotations

import pytest

from sparklog.fs import read_bytes, write_durably
from sparklog.testing.crashes import every_crash
from sparklog.testing.crashfs import CrashFS


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
