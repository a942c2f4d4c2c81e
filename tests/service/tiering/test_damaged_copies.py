"""A damaged copy is made again from the local segment, which stays until then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.fs import LOCAL
from sparklog.service.verification.findings import Verification
from sparklog.service.verification.tier_verifier import verify_tier
from sparklog.testing.faultstore import Bucket, FaultStore
from sparklog.tiered.copying.content_check import damaged_copies
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import log_object, manifest_object
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.remote_segment import RemoteSegment
from tests.service.logs import flip, logs
from tests.service.tiering.test_copy_confirmation import shrink
from tests.service.tiering.test_remote_log_manager import bases, check, once
from tests.tiered.archives import copies_of
from tests.tiered.logs import filled

Spoil = Callable[[Bucket, list[RemoteSegment]], None]
"""Damages the copy of the second segment; gets all copies, ascending."""


def flipped(name: Callable[[RemoteSegment], str], at: int) -> Spoil:
    def spoil(bucket: Bucket, copies: list[RemoteSegment]) -> None:
        data, when = bucket.objects[name(copies[1])]
        at_byte = at % len(data)
        changed = data[:at_byte] + bytes([data[at_byte] ^ 4]) + data[at_byte + 1 :]
        bucket.objects[name(copies[1])] = changed, when

    return spoil


def cut(name: Callable[[RemoteSegment], str], size: int) -> Spoil:
    def spoil(bucket: Bucket, copies: list[RemoteSegment]) -> None:
        data, when = bucket.objects[name(copies[1])]
        bucket.objects[name(copies[1])] = data[:size], when

    return spoil


def gone(name: Callable[[RemoteSegment], str]) -> Spoil:
    def spoil(bucket: Bucket, copies: list[RemoteSegment]) -> None:
        del bucket.objects[name(copies[1])]

    return spoil


def swapped(name: Callable[[RemoteSegment], str]) -> Spoil:
    def spoil(bucket: Bucket, copies: list[RemoteSegment]) -> None:
        one, other = name(copies[1]), name(copies[2])
        bucket.objects[one], bucket.objects[other] = bucket.objects[other], bucket.objects[one]

    return spoil


def neighbours(bucket: Bucket, copies: list[RemoteSegment]) -> None:
    """Both objects are those of the next segment, which agree with one another."""
    for name in (log_object, manifest_object):
        bucket.objects[name(copies[1])] = bucket.objects[name(copies[2])]


DAMAGES: dict[str, Spoil] = {
    "log, flipped bit": flipped(log_object, 100),
    "manifest, flipped bit": flipped(manifest_object, 40),
    "index in the manifest, flipped bit": flipped(manifest_object, -3),
    "log, truncated": cut(log_object, -1),
    "log, empty": cut(log_object, 0),
    "manifest, truncated": cut(manifest_object, -1),
    "manifest, empty": cut(manifest_object, 0),
    "log, missing": gone(log_object),
    "manifest, missing": gone(manifest_object),
    "logs swapped": swapped(log_object),
    "manifests swapped": swapped(manifest_object),
    "the next segment's objects": neighbours,
}


def deep(path: str, store: FaultStore) -> Verification:
    return verify_tier(path, store=store, deep=True, options=RemoteOptions(remote_patience_ms=0))


@pytest.fixture(params=DAMAGES)
def spoil(request: pytest.FixtureRequest) -> Spoil:
    return DAMAGES[request.param]


def test_what_verify_finds_is_copied_again_by_the_next_round(
    path: str, clock: ManualClock, store: FaultStore, spoil: Spoil
) -> None:
    """`tier verify --deep` promises that; the service is another process, and sweeps nothing."""
    with filled(path, clock, 12) as log:
        options = {"service.remote.sweep.interval.ms": "-1"}
        once(path, clock, store)
        spoil(store.bucket, sorted(copies_of(log, clock), key=lambda s: s.base))
        report = deep(path, store)
        assert report.findings
        assert all("the service's next round copies them again" in f.what for f in report.findings)
        assert damaged_copies(LOCAL, path)
        uploaded = once(path, clock, store, options=options).uploaded
        assert len(uploaded) == len({f.first for f in report.findings})
        assert not deep(path, store).findings
        assert not damaged_copies(LOCAL, path)
        check(path, log, clock, store)


def test_local_retention_never_takes_the_last_good_copy(
    path: str, clock: ManualClock, store: FaultStore, spoil: Spoil
) -> None:
    """Nobody knew of the damage. Each round is a process of its own."""
    with filled(path, clock, 12) as log:
        once(path, clock, store)
        spoil(store.bucket, sorted(copies_of(log, clock), key=lambda s: s.base))
        before = bases(path)
        shrink(log)
        options = {"service.remote.sweep.interval.ms": "-1"}
        report = once(path, clock, store, options=options)
        assert bases(path)[0] == before[1]  # what is before it has a whole copy
        assert any("so the local segments stay" in error for error in report.errors)
        for _ in range(2):
            once(path, clock, store, options=options)
        assert bases(path)[0] >= before[-1]
        assert not deep(path, store).findings
        check(path, log, clock, store)


@pytest.mark.parametrize("is_empty", [True, False], ids=["empty", "without its last batch"])
def test_a_local_segment_that_lost_batches_replaces_no_copy(
    path: str, clock: ManualClock, store: FaultStore, is_empty: bool
) -> None:
    """Its file ends with a whole batch, so only the offsets show that some are missing."""
    with filled(path, clock, 30) as log:
        once(path, clock, store)
        copies = sorted(copies_of(log, clock), key=lambda s: s.base)
    segment = next(p for p in logs(Path(path, "t-0")) if int(p.stem) == copies[1].base)
    whole = segment.read_bytes()
    starts = list(batch_starts(whole))
    assert len(starts) > 1
    segment.write_bytes(whole[: 0 if is_empty else starts[-1]])
    before = {name for name in store.bucket.objects if name.endswith(".log")}
    for _ in range(3):
        clock.advance(60_000)
        report = once(path, clock, store)
        assert any("the segment is not copied. Restore the file" in each for each in report.errors)
    assert before <= store.bucket.objects.keys()
    segment.write_bytes(whole)
    with sparklog.open(path, "rw", clock=clock) as log:
        assert not once(path, clock, store).errors
        check(path, log, clock, store)


def batch_starts(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        yield at
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")


def test_both_are_damaged(path: str, clock: ManualClock, store: FaultStore) -> None:
    """No copy is made of a damaged segment, and neither side is deleted."""
    with filled(path, clock, 12) as log:
        once(path, clock, store)
        DAMAGES["log, flipped bit"](
            store.bucket, sorted(copies_of(log, clock), key=lambda s: s.base)
        )
        names = set(store.bucket.objects)
        flip(logs(Path(path, "t-0"))[1], 90)
        shrink(log)
        for _ in range(3):
            report = once(path, clock, store)
        assert names <= set(store.bucket.objects)
        assert bases(path)[0] == sorted(copies_of(log, clock), key=lambda s: s.base)[1].base
        assert any("the header says" in error for error in report.errors)
        assert damaged_copies(LOCAL, path)


def test_damage_where_nothing_is_local(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 12, local_retention_bytes="0") as log:
        for _ in range(3):
            once(path, clock, store)
        copies = sorted(copies_of(log, clock), key=lambda s: s.base)
        DAMAGES["log, flipped bit"](store.bucket, copies)
        (found,) = deep(path, store).findings
        assert "restore it from a copy of the bucket" in found.what
        assert not damaged_copies(LOCAL, path)
        names = set(store.bucket.objects)
        once(path, clock, store)
        assert names <= set(store.bucket.objects)


def test_verify_against_another_store_records_nothing(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    """With a wrong endpoint all copies are missing; the service must not copy all of them again."""
    with filled(path, clock, 12):
        once(path, clock, store)
        store.bucket.objects, whole = {}, store.bucket.objects
        report = deep(path, store)
        assert report.findings and not damaged_copies(LOCAL, path)
        assert all("is it another store" in found.what for found in report.findings)
        store.bucket.objects = whole
        assert not once(path, clock, store).uploaded


def test_encrypted_copies_are_read_before_local_segments_go(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    ring = Keyring({"k": bytes(32)}, "k")
    with filled(path, clock, 12) as log:
        once(path, clock, store, keyring=ring)
        copies = sorted(copies_of(log, clock), key=lambda s: s.base)
        DAMAGES["log, flipped bit"](store.bucket, copies)
        shrink(log)
        once(path, clock, store, keyring=ring)
        assert bases(path)[0] == copies[1].base
        for _ in range(2):
            once(path, clock, store, keyring=ring)
        assert bases(path)[0] >= copies[-1].base
        assert not deep(path, store).findings
