"""Moves, erasures and deleted topics as operations on a `World`: see `tests.crash.harness`."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from sparklog.errors import LogLockedError, StorageUnavailableError
from sparklog.logdir.segment_files import segment_bases
from sparklog.service import Service
from sparklog.storage.erasure_report import ErasureReport
from sparklog.testing.crashfs import CrashFS
from tests.crash.harness import OPTIONS, Planned, World
from tests.crash.model import Model

Key = tuple[str, int]


def plan_move(world: World, key: Key, to: str) -> Planned:
    """Move a partition to another log dir; it stays while another process has the log open."""
    source, after = world.model.parts[key].place, world.model.copy()
    if world.others:

        def refused() -> None:
            with pytest.raises(LogLockedError, match="open for writing elsewhere"):
                world.opened.move_partition(*key, to)

        return Planned(f"move {key} to {to}, in vain", after, refused)
    after.parts[key].place = to

    def act() -> None:
        moved = world.opened.move_partition(*key, to)
        assert (moved.source, moved.target) == (source, to)

    return Planned(f"move {key} to {to}", after, act, midway=[world.model])


def plan_erase(world: World, topic: str, key: bytes) -> Planned:
    """Erase a key from a topic, by the service; it says itself whether nothing is left."""
    before = world.model
    life = before.lives[topic]
    after = before.with_erased(topic, key)
    planned = Planned(f"erase {key!r} from {topic}", after, lambda: None, in_steps=True)
    planned.midway = [before.copy(), after.copy()]
    for model in planned.midway:
        model.begun |= {(life, key)}
    for (name, partition), part in before.parts.items():
        if name == topic:
            place = world.opened.topic(topic).dirs[partition]
            bounds = [*segment_bases(world.fs, place), part.end]
            planned.parts[name, partition] = [part.without(key, bound) for bound in bounds]

    def act() -> None:
        options = OPTIONS | world.options
        service = Service(world.path, options=options, fs=world.fs, clock=world.clock)
        try:
            report = service.erase(topic, [key], wait_ms=0)
        finally:
            service.close()
        for error in [*report.errors, *(one.error for one in report.partitions if one.error)]:
            raise StorageUnavailableError(error)
        if report.complete:
            check_gone(world, topic, key)
        else:
            planned.after.begun |= {(life, key)}
        _check_counts(report, before, topic, after)

    planned.act = act
    return planned


def _check_counts(report: ErasureReport, before: Model, topic: str, after: Model) -> None:
    """The report tells the offsets that went, and no others, of those that readers see."""
    for part in report.partitions:
        was, now = before.parts[topic, part.partition], after.parts[topic, part.partition]
        pairs = zip(was.values, now.values, strict=True)
        gone = {o for o, (value, left) in enumerate(pairs, was.base) if value != left}
        told = {o for first, end in part.offsets.ranges for o in range(first, end)}
        assert {o for o in told ^ gone if o >= was.start} == set(), (
            f"{topic}-{part.partition}: {told} are said to be gone, not {gone}"
        )


def check_gone(world: World, topic: str, key: bytes) -> None:
    """No file of a topic's holds a record with that key, and no life of it can be given back."""
    lives = [one for one in world.opened.deleted_topics() if one.name == topic]
    assert not lives, f"{lives} are there, and {key!r} is said to be erased"
    of_topic = re.compile(rf"{topic}-\d+(\.[0-9a-f]{{32}}-\w+)?")
    raw = bytes([2 * len(key)]) + key  # a varint and the bytes
    found = []
    for directory in world.path.split(","):
        for name in world.fs.listdir(directory):
            path = f"{directory}/{name}"
            if of_topic.fullmatch(name) and world.fs.is_dir(path):
                found += [one for one in _files(world.fs, path) if raw in _bytes(world.fs, one)]
    assert not found, f"{key!r} is in {found}, and was erased"


def _files(fs: CrashFS, directory: str) -> list[str]:
    return [f"{directory}/{name}" for name in fs.listdir(directory)]


def _bytes(fs: CrashFS, path: str) -> bytes:
    with suppress(FileNotFoundError), fs.open(path) as file:
        return file.pread(1 << 20, 0)
    return b""
