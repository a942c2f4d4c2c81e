"""Erasures, cut at every file-system call: of each segment the old or the new, nothing else."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sparklog import service
from sparklog.format.erasure import KeyPredicate
from sparklog.log.log import Log
from sparklog.log.record_erasure import erase_records
from sparklog.logdir.cleaning.cleaner import clean_partition
from sparklog.logdir.cleaning.erasure import ErasableSegments
from sparklog.logdir.home import commits_of
from sparklog.service import leadership
from sparklog.storage.erasure_report import ErasureReport, PartitionErasure
from sparklog.testing.crashes import Crash, crashes_now
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Call, Fault
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.copying.orphans import UPLOAD_MS
from tests import depth
from tests.crash import test_tiering
from tests.crash.explore import digest
from tests.crash.harness import ROOT, open_log
from tests.crash.swaps import (
    SCENARIOS,
    TOPIC,
    Rows,
    Scenario,
    World,
    keyed,
    names,
    seen,
)
from tests.crash.test_tiering import OPTIONS, Machine, cuts, prepared
from tests.tiered.archives import through_tiers

ODD = "0[0-9][0-9][13579]"
Allowed = list[tuple[Rows, Rows]]
CASES = (
    Scenario("in every segment", (keyed("a", "b"), keyed("c", "a"), keyed("a")), 10_000,
             tail=keyed("z", "a")),
    Scenario("in the active one alone", (keyed("b"), keyed("c")), 10_000, tail=keyed("a")),
    SCENARIOS[-1],
)  # fmt: skip
cases = pytest.mark.parametrize("case", CASES, ids=lambda s: s.name)


def erase(log: Log, *, until: int | None = None, dry_run: bool = False) -> PartitionErasure:
    end = log.offsets(TOPIC)[0][1]
    report = PartitionErasure(topic=TOPIC, partition=0, end=end if until is None else until)
    segments = ErasableSegments(commits_of(log), report)
    erase_records(segments, KeyPredicate([b"a"]), dry_run=dry_run)
    return report


def allowed_of(world: World) -> Allowed:
    """Before, and after each of the segments that hold the key, from the first on."""
    whole = seen(world.log)
    bases = [int(name[:20]) for name in names(world.fs) if name.endswith(".log")]

    def without(bound: int) -> tuple[Rows, Rows]:
        first, second = (
            tuple(row for row in rows if row[0] >= bound or row[1] != b"a") for rows in whole
        )
        return first, second

    return [without(bound) for bound in [*bases, world.end]]


def judge(image: Crash, world: World, allowed: Allowed) -> None:
    with open_log(image.fs, world.clock) as log:
        assert seen(log) in allowed
        erase(log)
        assert seen(log) == allowed[-1]
        assert not erase(log).offsets
        assert not [n for n in names(image.fs) if n.endswith((".cleaned", ".swap", ".deleted"))]
        assert not holding(image.fs, b"\x02a")


def holding(fs: CrashFS, raw: bytes) -> list[str]:
    """The files of the partition that hold these bytes: a key's length and the key."""
    paths = [f"{ROOT}/{TOPIC}-0/{name}" for name in names(fs) if ".log" in name]
    return [path for path in paths if raw in fs.open(path).pread(1 << 20, 0)]


@cases
def test_every_cut_of_an_erasure(case: Scenario) -> None:
    world = World.of(case)
    allowed = allowed_of(world)
    assert allowed[-1] != allowed[0]
    assert holding(world.fs, b"\x02a")
    rng = random.Random(zlib.crc32(case.name.encode()))
    images: list[Crash] = []
    known: set[bytes] = set()

    def cut(call: Call | None) -> None:
        for image in crashes_now(world.fs, call, rng, 1):
            key = digest(image.fs)
            if key not in known:
                known.add(key)
                images.append(image)

    before = seen(world.log)[0]
    world.fs.on_call = cut
    report = erase(world.log)
    world.fs.on_call = None
    cut(None)
    assert seen(world.log) == allowed[-1]
    gone = [row[0] for row in before if row[1] == b"a"]
    assert [o for first, end in report.offsets.ranges for o in range(first, end)] == gone
    assert len(report.offsets) == len(gone)
    for image in rng.sample(images, min(depth.ERASED_CRASHES, len(images))):
        try:
            judge(image, world, allowed)
        except BaseException as error:
            error.add_note(image.how)
            raise
    assert len(images) > 10


@cases
def test_readers_see_old_or_new_segments_at_every_call(case: Scenario) -> None:
    """Nobody recovers: one that comes then, and one that has files and listings from before."""
    world = World.of(case)
    allowed = allowed_of(world)
    with open_log(world.fs.process(), world.clock, "r") as old:
        seen(old)

        def at_every_call(call: Call) -> None:
            if call.op not in ("rename", "unlink", "link"):
                return  # the others change nothing that a reader looks at
            fs = (world.fs if call.number % 2 else world.fs.kill_clone()).process()
            with open_log(fs, world.clock, "r") as log:
                assert seen(log) in allowed
            assert seen(old) in allowed, call

        world.fs.on_call = at_every_call
        erase(world.log)
        world.fs.on_call = None
        assert seen(old) == allowed[-1]


@pytest.mark.parametrize("fault", [Fault.IO_ERROR, Fault.NO_SPACE])
def test_errors_at_each_call(fault: Fault) -> None:
    number = 0
    while True:  # one call after the other, until none of them fails
        number += depth.by_depth(small=5, ci=1, all=1)
        world = World.of(CASES[0])
        allowed = allowed_of(world)
        world.fs.fail_at(number, fault)
        try:
            erase(world.log)
        except Exception:
            world.fs.heal()
            assert seen(world.log) in allowed
            erase(world.log)
            assert seen(world.log) == allowed[-1]
            continue
        break
    assert number > 10


def test_what_is_written_meanwhile_stays() -> None:
    """A writer that commits the same key while segments are rewritten: that is a new record."""
    world = World.of(CASES[0])
    late: list[int] = []

    def write(call: Call) -> None:
        if not late and call.op == "pwrite" and call.path.endswith(".log.cleaned"):
            late.append(world.end)
            with open_log(world.fs.process(), world.clock) as other:
                other.append(TOPIC, pa.table({"key": [b"a", b"b"], "value": [b"new", b"new"]}))

    world.fs.on_call = write
    report = erase(world.log)
    world.fs.on_call = None
    assert late == [report.end]
    assert [row[:2] for row in seen(world.log)[0] if row[1] == b"a"] == [(report.end, b"a")]
    assert erase(world.log, until=report.end).offsets.ranges == []
    assert erase(world.log).offsets.ranges == [(report.end, report.end + 1)]


def test_a_cleaner_that_read_the_old_segments_gives_up() -> None:
    world = World.of(CASES[0])
    commits = commits_of(world.log)
    done = False

    def between(call: Call) -> None:
        nonlocal done
        if not done and call.op == "sync" and call.path.endswith(".timeindex.cleaned"):
            done = True
            erase(world.log)

    world.fs.on_call = between
    report = clean_partition(commits, TOPIC, 0)
    world.fs.on_call = None
    assert done
    assert report.interrupted
    assert not [row for row in seen(world.log)[0] if row[1] == b"a"]
    clean_partition(commits, TOPIC, 0)
    assert not holding(world.fs, b"\x02a")


class OddValues:
    """Every other record of a tiered log."""

    columns = ("value",)

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        odd = pc.match_substring_regex(records.column("value").cast(pa.string()), ODD)
        return pc.fill_null(odd, False)


def erase_in_pieces(machine: Machine, store: FaultStore) -> ErasureReport:
    return service.erase(
        test_tiering.ROOT, "t", predicate=OddValues(), options=OPTIONS, fs=machine.fs,
        clock=machine.clock, opening=lambda url, options: store, wait_ms=0,
    )  # fmt: skip


@pytest.mark.deep
def test_a_service_works_between_two_pieces_and_either_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing that stays is lost; the same erasure again leaves no byte, in the bucket or here."""
    machine, whole = prepared(2, local_retention_bytes="800")
    stay = {
        key: {offset: value for offset, value in held.items() if not re.match(ODD.encode(), value)}
        for key, held in whole.items()
    }
    assert stay != whole
    resting: list[Callable[[], object]] = []

    def rest(self: leadership.BorrowedLease) -> None:
        if self._ended_ms and resting:
            resting[0]()

    monkeypatch.setattr(leadership, "HOLD_MS", 0)
    monkeypatch.setattr(leadership.BorrowedLease, "pause_between_loans", rest)

    def act(store: FaultStore) -> None:
        resting.append(lambda: machine.service(store).run_once())
        erase_in_pieces(machine, store)
        resting.clear()

    images = cuts(machine, act, 7)
    assert len(images) > 50
    for image in random.Random(7).sample(images, min(depth.TIERING_CUTS, len(images))):
        try:
            cut = image.machine
            with cut.open() as log:
                found = through_tiers(log, cut.clock, cut.store())
            for key, held in stay.items():
                assert held.items() <= found[key].items()
            report = erase_in_pieces(cut, cut.store())
            for _ in range(3):  # what a cut left in the bucket must be old before it goes
                cut.clock.advance(UPLOAD_MS // 2 + 1)
                assert not cut.service(cut.store()).run_once().errors
            report = erase_in_pieces(cut, cut.store())
            assert report.complete, (report.pending, report.errors, report.partitions)
            with cut.open() as log:
                assert through_tiers(log, cut.clock, cut.store()) == stay
            left = b"".join(raw for raw, _ in cut.bucket.objects.values())
            assert not re.search(ODD.encode() + rb"\.\.", left)
        except BaseException as error:
            error.add_note(image.how)
            raise


def test_a_rehearsal_changes_nothing() -> None:
    world = World.of(CASES[0])
    before = digest(world.fs)
    report = erase(world.log, dry_run=True)
    assert digest(world.fs) == before
    assert len(report.offsets) == 4
    assert [one.base for one in report.erased_from] == [0, 2, 4, 5]
    real = erase(world.log)
    assert real.offsets == report.offsets
    assert all(one.bytes_after < one.bytes_before for one in real.erased_from)
