"""Faults that a repair can mend: what is done to which file, and what must be said of it."""

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from sparklog.common import TopicPartition
from sparklog.format.checkpoint_files import format_offsets, parse_offsets
from sparklog.format.producer_snapshot import format_snapshot, parse_snapshot
from sparklog.logdir.offset_checkpoints import CLEANER, HIGH_WATERMARK, LOG_START, RECOVERY_POINT
from sparklog.service import Severity
from tests.service.logs import T0, cut, flip, patch

Plant = Callable[[Path], object]
gone: Plant = Path.unlink


@dataclasses.dataclass(frozen=True)
class Fault:
    """`plant` breaks `file`, a path in the log that `logs.make` makes; a finding says `what`."""

    name: str
    file: str
    what: str
    plant: Plant
    severity: Severity = Severity.DIFFERENCE


def flipped(at: int, mask: int = 1) -> Plant:
    return lambda path: flip(path, at, mask)


def cut_to(size: int) -> Plant:
    return lambda path: cut(path, size)


def with_more(data: bytes) -> Plant:
    return lambda path: path.write_bytes(path.read_bytes() + data)


def overwritten(at: int, data: bytes) -> Plant:
    return lambda path: patch(path, at, data)


def text(content: str) -> Plant:
    return lambda path: path.write_text(content)


def copy_of(source: str) -> Plant:
    """`source`: relative to the log."""
    return lambda path: shutil.copy(path.parent.parent / source, path)


def with_log(source: str) -> Plant:
    return lambda path: path.write_bytes(
        path.read_bytes() + (path.parent.parent / source).read_bytes()
    )


def offsets(topic: str, partition: int, offset: int) -> Plant:
    """One entry of a checkpoint file changed or added."""

    def plant(path: Path) -> None:
        known = parse_offsets(path.read_bytes(), str(path)) if path.exists() else {}
        path.write_bytes(format_offsets({**known, TopicPartition(topic, partition): offset}))

    return plant


def other_sequences(path: Path) -> None:
    """A snapshot's entries changed, under a CRC that fits."""
    entries = parse_snapshot(path.read_bytes(), str(path))
    changed = [dataclasses.replace(e, last_sequence=e.last_sequence + 1) for e in entries]
    path.write_bytes(format_snapshot(changed))


def lacking_a_producer(path: Path) -> None:
    """One entry less, in a file too young for that producer to have expired."""
    path.write_bytes(format_snapshot(parse_snapshot(path.read_bytes(), str(path))[:1]))
    os.utime(path, (T0 // 1000 + 60, T0 // 1000 + 60))


SEGMENT = "t-0/00000000000000000024"
ACTIVE = "t-0/00000000000000000048"
FIRST = "t-0/00000000000000000000"
P = "t-1/000000000000000000"  # of t-1, whose segments begin at 0, 11 and 21 and end at 24
EPOCHS_0, EPOCHS_1 = (f"t-{p}/leader-epoch-checkpoint" for p in (0, 1))
ID = "t-0/partition.metadata"
PAST = b"\0\0\0\x7f\0\x01\0\0"
ABORT = bytes(2) + b"".join(n.to_bytes(8, "big") for n in (7, 11, 13, 14))
LEFTOVER = Severity.LEFTOVER

FAULTS = [
    Fault("index missing", f"{SEGMENT}.index", "missing", gone),
    Fault("index position flipped", f"{SEGMENT}.index", "begins at byte", flipped(7, 64)),
    Fault("index offset flipped", f"{SEGMENT}.index", "begins at byte", flipped(3, 2)),
    Fault("index unsorted", f"{SEGMENT}.index", "goes back", overwritten(0, b"\0\0\x7f\0")),
    Fault("index torn", f"{SEGMENT}.index", "no multiple", cut_to(-3)),
    Fault("index short", f"{SEGMENT}.index", "nothing is indexed", cut_to(8)),
    Fault("index past the log", f"{SEGMENT}.index", "points past", with_more(PAST)),
    Fault("index with zeros", f"{SEGMENT}.index", "goes back", with_more(bytes(64))),
    Fault("active index with zeros", f"{ACTIVE}.index", "goes back", with_more(bytes(64))),
    Fault("time index missing", f"{SEGMENT}.timeindex", "missing", gone),
    Fault("time index empty", f"{SEGMENT}.timeindex", "last entry has time -1", cut_to(0)),
    Fault("time flipped", f"{SEGMENT}.timeindex", "first to reach", flipped(7)),
    Fault("offset of a time flipped", f"{SEGMENT}.timeindex", "first to reach", flipped(11)),
    Fault("no final time", f"{SEGMENT}.timeindex", "the segment's largest", cut_to(-12)),
    Fault("time index torn", f"{SEGMENT}.timeindex", "no multiple", with_more(b"\0")),
    Fault("snapshot flipped", f"{SEGMENT}.snapshot", "CRC", flipped(3)),
    Fault("snapshot missing", f"{SEGMENT}.snapshot", "missing", gone),
    Fault("snapshot of producers flipped", f"{P}21.snapshot", "CRC", flipped(30)),
    Fault("snapshot of other producers", f"{P}24.snapshot", "last_sequence", other_sequences),
    Fault("older snapshot wrong", f"{P}11.snapshot", "last_sequence", other_sequences),
    Fault("snapshot lacks one", f"{P}24.snapshot", "lacks producer", lacking_a_producer),
    Fault("newest snapshot missing", f"{P}24.snapshot", "missing", gone),
    Fault("an abort of nobody", f"{P}11.txnindex", "others", lambda p: p.write_bytes(ABORT)),
    Fault("txnindex of rubbish", f"{P}11.txnindex", "not a multiple", text("x")),
    Fault("epochs unreadable", EPOCHS_0, "not a number", overwritten(2, b"x")),
    Fault("epochs missing", EPOCHS_0, "the file says None", gone),
    Fault("epochs begin late", EPOCHS_1, "the file says None", text("0\n1\n0 9\n")),
    Fault("another epoch", EPOCHS_1, "the file says 5", text("0\n1\n5 0\n")),
    Fault("an epoch too many", EPOCHS_1, "no batch has epoch 1", text("0\n2\n0 0\n1 8\n")),
    Fault("an epoch past the end", EPOCHS_1, "past the end", text("0\n2\n0 0\n1 800\n")),
    Fault("metadata missing", ID, "missing", gone),
    Fault("metadata unreadable", ID, "version", flipped(0)),
    Fault("watermarks missing", "sparklog.watermarks", "missing", gone),
    Fault("watermarks flipped", "sparklog.watermarks", "damaged", flipped(-5)),
    Fault("topics missing", "sparklog.topics", "missing", gone),
    Fault("topics flipped", "sparklog.topics", "checksum", flipped(-30)),
    Fault("marks unreadable", HIGH_WATERMARK, "not a number", overwritten(0, b"x")),
    Fault("mark low", HIGH_WATERMARK, "the ledger says 60", offsets("t", 0, 59)),
    Fault("mark high", HIGH_WATERMARK, "the log ends at 60", offsets("t", 0, 61)),
    Fault("marks missing", HIGH_WATERMARK, "missing", gone),
    Fault("points missing", RECOVERY_POINT, "missing", gone),
    Fault("point high", RECOVERY_POINT, "the log ends at 60", offsets("t", 0, 1000)),
    Fault("points torn", RECOVERY_POINT, "must be the number of entries", cut_to(-12)),
    Fault("start low", LOG_START, "the ledger says 14", offsets("t", 0, 13)),
    Fault("start high", LOG_START, "the ledger says 14", offsets("t", 0, 15)),
    Fault("start of another", LOG_START, "the ledger says 0", offsets("u", 0, 2)),
    Fault("starts missing", LOG_START, "missing", gone),
    Fault("cleaner past the end", CLEANER, "the log ends at 10", offsets("u", 0, 99)),
    Fault("no offset in a name", "t-0/old.log", "no offset", copy_of(f"{SEGMENT}.log")),
    Fault("a foreign file", "t-0/notes.txt", "no file of a log", text("mine"), LEFTOVER),
    Fault("a cut write", f"{EPOCHS_0}.tmp", "no file of a log", text("0"), LEFTOVER),
    Fault("a cut write above", "sparklog.topics.tmp", "was cut", text("{"), LEFTOVER),
    Fault(
        "an index without a log", "u-0/00000000000000000036.index", "without a log",
        copy_of(f"{SEGMENT}.index"), LEFTOVER,
    ),
    Fault(
        "a snapshot of no segment", "u-0/00000000000000000007.snapshot", "of no segment",
        copy_of("u-0/00000000000000000010.snapshot"), LEFTOVER,
    ),
    Fault(
        "a damaged snapshot of no segment", "u-0/00000000000000000007.snapshot", "and damaged",
        text("x"), LEFTOVER,
    ),
    Fault(
        "a snapshot of what came before", f"{FIRST}.snapshot", "are not a snapshot", text("x")
    ),
    Fault(
        "a cleaner's file", f"{SEGMENT}.log.cleaned", "never finished",
        copy_of(f"{SEGMENT}.log"), LEFTOVER,
    ),
    Fault("a swap", f"{SEGMENT}.log.swap", "a segment's place", copy_of(f"{SEGMENT}.log")),
    Fault("a tail of zeros", f"{ACTIVE}.log", "past the end", with_more(bytes(700))),
    Fault("a tail of records", f"{ACTIVE}.log", "past the end", with_log(f"{SEGMENT}.log")),
    Fault(
        "a segment past the end", "t-0/00000000000000000090.log", "past the end",
        copy_of(f"{SEGMENT}.log"),
    ),
    Fault("damage below the start", f"{FIRST}.log", "below the log start", flipped(80)),
]  # fmt: skip
