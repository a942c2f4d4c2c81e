"""What can happen to each file of a log dir, and what each command says of it then.

A row is a file and a damage; the table has what is expected of reading, writing, `verify`, `status`
and `verify --repair`. Wherever a read or a write fails or is wrong, `verify` isn't ok, `status` is
red (unless only the bytes within segments tell, which it doesn't read), and the error names what
helps; a repair either makes all of it right, or changes nothing that a copy would need.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

import sparklog
from sparklog import BatchConflictError, SparklogError
from sparklog.log import read_retry
from sparklog.logdir.offset_checkpoints import HIGH_WATERMARK, LOG_START, RECOVERY_POINT
from sparklog.logdir.state_copy import STATE_NAME
from sparklog.service import verify
from sparklog.service.health import Level, examine
from tests.service.logs import fill, records
from tests.service.repair.damaged_logs import (
    DAMAGES,
    LEDGER,
    LEDGER_LOG,
    RETENTION_MS,
    at,
    commit,
)

CLOSED_SEGMENT = "t-0/00000000000000000024.log"
ACTIVE_SEGMENT = "u-0/00000000000000000000.log"
GROUP = "sparklog.readers-cd0aa9856147b6c5b4ff2b7dfee5da20"


@dataclass(frozen=True)
class Expected:
    """`reads`, `writes`: right, or an error that names what helps; `stale`: as of an older commit.

    `found`: `verify` isn't ok. `red`: `status` is. `mended`: after a repair, all of it is right.
    """

    reads: bool | str = True
    writes: bool = True
    found: bool = False
    red: bool = False
    mended: bool = True


FINE = Expected()  # nobody needs it, or whoever does has it from elsewhere
DERIVED = Expected(found=True)  # the same, but `verify` reports it
UNREADABLE = Expected(reads=False, found=True, red=True)
UNUSABLE = Expected(reads=False, writes=False, found=True, red=True)
LOST_GROUP = Expected(found=True, mended=False)  # its reader writes it again
NO_LEDGER = Expected(writes=False, found=True, red=True)
NO_WRITER = Expected(writes=False, found=True, red=True)
LOST = Expected(reads=False, found=True, red=True, mended=False)  # writes go to another segment
LOST_WITHIN = Expected(reads=False, found=True, mended=False)
LOST_END = Expected(reads=False, writes=False, found=True, red=True, mended=False)
LOST_WITHIN_END = Expected(reads=False, writes=False, found=True, mended=False)
STALE = Expected(reads="stale")  # as a power cut may leave it: recovery publishes anew

ALL = ("missing", "empty", "truncated", "flipped", "zeroed", "older")
TABLE: dict[str, dict[str, dict[str, Expected]]] = {
    "closed": {
        LEDGER: {"missing": NO_LEDGER, "empty": NO_LEDGER},
        LEDGER_LOG: dict.fromkeys(ALL, NO_LEDGER),
        STATE_NAME: dict.fromkeys(ALL, FINE),
        "sparklog.watermarks": {
            **dict.fromkeys(("missing", "empty", "truncated", "flipped", "zeroed"), DERIVED),
            "older": UNREADABLE,
        },
        "sparklog.topics": {
            "missing": DERIVED, "older": DERIVED,
            **dict.fromkeys(("empty", "truncated", "flipped", "zeroed"), UNREADABLE),
        },
        "sparklog.dirs": dict.fromkeys(ALL[:5], FINE),
        "sparklog.lock": dict.fromkeys(ALL, FINE),
        GROUP: {
            **dict.fromkeys(("missing", "empty", "older"), FINE),
            **dict.fromkeys(("truncated", "flipped", "zeroed"), LOST_GROUP),
        },
        HIGH_WATERMARK: {
            "missing": DERIVED, "empty": DERIVED, "older": UNREADABLE,
            **dict.fromkeys(("truncated", "zeroed"), UNUSABLE),
        },
        RECOVERY_POINT: dict.fromkeys(("missing", "truncated", "zeroed", "older"), DERIVED),
        LOG_START: {
            "missing": DERIVED, "older": DERIVED,
            **dict.fromkeys(("truncated", "zeroed"), UNREADABLE),
        },
        "t-0/leader-epoch-checkpoint": {
            "missing": DERIVED, "empty": DERIVED,
            **dict.fromkeys(("truncated", "zeroed"), NO_WRITER),
        },
        "t-0/partition.metadata": {
            "missing": DERIVED, **dict.fromkeys(("empty", "truncated", "zeroed"), UNUSABLE),
        },
        CLOSED_SEGMENT: {
            "missing": LOST, "empty": LOST,
            **dict.fromkeys(("truncated", "flipped", "zeroed"), LOST_WITHIN),
        },
        ACTIVE_SEGMENT: {
            "missing": LOST_END, "empty": LOST_END, "flipped": LOST_WITHIN,
            **dict.fromkeys(("truncated", "zeroed", "older"), LOST_WITHIN_END),
        },
    },
    "crashed": {
        LEDGER: {"missing": NO_LEDGER, "empty": NO_LEDGER},
        LEDGER_LOG: dict.fromkeys(ALL, NO_LEDGER),
        STATE_NAME: dict.fromkeys(ALL[:5], FINE),
        "sparklog.watermarks": {**dict.fromkeys(ALL[:5], DERIVED), "older": STALE},
        "sparklog.topics": dict.fromkeys(("empty", "truncated", "flipped", "zeroed"), UNREADABLE),
        LOG_START: dict.fromkeys(("truncated", "zeroed"), DERIVED),
        CLOSED_SEGMENT: {"missing": LOST, "empty": LOST_END, "flipped": LOST_WITHIN},
    },
}  # fmt: skip
ROWS = [
    (name, file, damage, expected)
    for name, files in TABLE.items()
    for file, damages in files.items()
    for damage, expected in damages.items()
]
ADVICE = re.compile(r"verify PATH --repair|open the log once for writing|[Rr]estore|from a copy")


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes, so that a second look sees the same."""
    monkeypatch.setattr(read_retry, "RETRY_MS", 0)


def read(path: Path, whole: dict[tuple[str, int], list[tuple[int, bytes]]]) -> bool | str:
    """True: all that is committed is read; False: an error says what helps; "stale": less."""
    try:
        found = records(path)
    except SparklogError as error:
        return _advises(error)
    if found == whole:
        return True
    behind = [found[key] and found[key][-1] > whole[key][-1] for key in whole]
    return "wrong" if found.keys() != whole.keys() or any(behind) else "stale"


def write(path: Path) -> bool:
    """Write to a copy; False: an error says what helps. What the ledger knew is still known."""
    copy = path.with_name("written")
    shutil.copytree(path, copy)
    try:
        with sparklog.open(copy, "rw", clock=at(6000)) as log:
            fill(log, "t", 0, 1, first=99)
            commit(log, "elsewhere", 0, topic="t")
            assert log.topics()["u"].config.retention_ms == RETENTION_MS
            assert [topic.name for topic in log.deleted_topics()] == ["d"]
            assert log.offsets("t")[0][0] == 20
            commit(log, "q", 4)
            commit(log, "q", 5)
    except BatchConflictError as error:  # a batch that may be there already is refused
        return "Log.reset" in str(error)
    except SparklogError as error:
        return _advises(error)
    finally:
        shutil.rmtree(copy)
    return True


def _advises(error: SparklogError) -> bool:
    """False; raises AssertionError unless the error names what helps."""
    assert ADVICE.search(str(error)), error
    return False


@pytest.mark.parametrize(
    ("name", "file", "damage", "expected"),
    [
        pytest.param(
            *row, id="-".join(row[:3]), marks=pytest.mark.deep if number % 2 else ()
        )
        for number, row in enumerate(ROWS)
    ],
)
def test_damage(name: str, file: str, damage: str, expected: Expected, logs: Path) -> None:
    path = logs / name
    whole = records(path)
    DAMAGES[damage](path / file)
    health = examine(path, clock=at(5000))
    report = verify(path)
    got = Expected(
        reads=read(path, whole), writes=write(path), found=not report.ok,
        red=health.level is Level.RED, mended=expected.mended,
    )  # fmt: skip
    assert got == expected, f"{health}\n{report}"
    repaired = verify(path, repair=True, clock=at(5000))
    assert repaired.ok == expected.mended, str(repaired)
    assert read(path, whole) == (expected.mended or expected.reads)
    assert write(path) == (expected.mended or expected.writes)
    if expected.mended:
        assert examine(path, clock=at(5500)).level is not Level.RED
        assert verify(path).ok
