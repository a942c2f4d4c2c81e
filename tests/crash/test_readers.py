"""Registered readers on a disk that crashes: a commit is the old one or the new one, whole."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from sparklog.clock import ManualClock
from sparklog.errors import StorageUnavailableError
from sparklog.logdir.group_offsets import GroupFiles
from sparklog.storage.group_store import Groups
from sparklog.testing.crashes import Crash, crashes_now
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Fault
from sparklog.testing.groups_contract import offsets_of

HOME = "/log"
T0, T1 = ("t", 0), ("t", 1)
Offsets = dict[tuple[str, int], int]


def groups_in(fs: CrashFS) -> Groups:
    return Groups(GroupFiles(fs, HOME))


def commit(fs: CrashFS, group: str, offsets: Offsets, now_ms: int = 1) -> None:
    groups_in(fs).commit(group, offsets, now_ms=now_ms, host="h")


def machine() -> CrashFS:
    """Group old has committed, durably, and again; other too."""
    fs = CrashFS(clock=ManualClock())
    fs.mkdir(HOME)
    fs.sync_dir("/")
    commit(fs, "other", {T0: 70})
    commit(fs, "old", {T0: 10, T1: 11})
    fs.sync_dir(HOME)
    return fs


def found(fs: CrashFS) -> dict[str, Offsets]:
    readers = groups_in(fs).readers()
    assert not readers.damaged
    return {r.group: {key: at.offset for key, at in r.offsets.items()} for r in readers.groups}


OTHER: dict[str, Offsets] = {"other": {T0: 70}}
OLD: dict[str, Offsets] = {"old": {T0: 10, T1: 11}}
ACTS: dict[str, tuple[Callable[[CrashFS], object], dict[str, Offsets], bool]] = {
    # what is done, what is there afterwards, whether a power cut must keep that
    "a new group": (lambda fs: commit(fs, "new", {T0: 5}), OTHER | OLD | {"new": {T0: 5}}, True),
    "a new partition": (
        lambda fs: commit(fs, "other", {T1: 5}), OLD | {"other": {T0: 70, T1: 5}}, True,
    ),
    "a commit": (lambda fs: commit(fs, "old", {T1: 12}), OTHER | {"old": {T0: 10, T1: 12}}, False),
    "a deletion": (lambda fs: groups_in(fs).delete("old"), OTHER, True),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTS)
def test_a_change_is_cut_anywhere(name: str) -> None:
    act, after, durable = ACTS[name]
    fs, rng, images = machine(), random.Random(name), []
    before = found(fs)
    fs.on_call = lambda call: images.extend(crashes_now(fs, call, rng, 4))
    act(fs)
    fs.on_call = None
    finished = [*crashes_now(fs, None, rng, 4)]
    assert len(images) > 10
    assert found(fs) == after
    for image in images:
        check(image, [before, after])
    for image in finished:
        check(image, [after] if durable or "kill" in image.how else [before, after])


def check(image: Crash, allowed: list[dict[str, Offsets]]) -> None:
    assert found(image.fs) in allowed, image.how
    commit(image.fs, "old", {T0: 99})  # whatever was left over, it goes on
    assert offsets_of(groups_in(image.fs), "old")[T0] == 99, image.how
    assert found(image.fs)["other"] in [view["other"] for view in allowed]


def test_an_expiry_is_cut_anywhere() -> None:
    """What is left is a subset of what was there: never a commit that nobody made."""
    fs, rng, images = machine(), random.Random(1), []
    commit(fs, "old", {T1: 20}, now_ms=1000)
    fs.sync_dir(HOME)
    before = len(fs.calls)
    fs.on_call = lambda call: images.extend(crashes_now(fs, call, rng, 4))
    gone = groups_in(fs).expire(now_ms=1000, retention_ms=500)
    fs.on_call = None
    assert [(e.group, e.partition) for e in gone] == [("old", 0), ("other", 0)]
    syncs = [call.op for call in fs.calls[before:] if call.op.startswith("sync")]
    assert syncs == ["sync"]  # of the changed file; what a power cut restores expires again
    assert found(fs) == {"old": {T1: 20}}
    for image in images:
        left = found(image.fs)
        assert left["old"] in ({T0: 10, T1: 20}, {T1: 20}), image.how
        assert left.get("other", {T0: 70}) == {T0: 70}, image.how
        groups_in(image.fs).expire(now_ms=1000, retention_ms=500)
        assert found(image.fs) == {"old": {T1: 20}}


@pytest.mark.parametrize("fault", [Fault.NO_SPACE, Fault.IO_ERROR])
def test_a_disk_that_refuses_leaves_the_old_commit(fault: Fault) -> None:
    number = 0
    while True:
        number += 1
        fs = machine()
        fs.fail_at(number, fault)
        words = ""
        try:
            commit(fs, "old", {T1: 12})
        except StorageUnavailableError as error:
            words = str(error)
        if not words:
            break
        assert "group old can't be stored in /log" in words
        fs.heal()
        assert found(fs)["old"][T1] in (11, 12)
        commit(fs, "old", {T1: 13})
        assert found(fs) == OTHER | {"old": {T0: 10, T1: 13}}
    assert number > 2
