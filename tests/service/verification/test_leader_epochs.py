"""One batch whose leader epoch was flipped never rewrites leader-epoch-checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from sparklog.format.checkpoint_files import format_epochs, parse_epochs
from sparklog.format.scan import BATCH_DTYPE, scan
from sparklog.fs import LOCAL
from sparklog.log.batch_windows import Window
from sparklog.service import verify
from sparklog.service.verification.findings import Findings, Severity
from sparklog.service.verification.leader_epochs import EpochCheck
from sparklog.service.verification.log_dir_state import ExpectedPartition, Situation
from tests.paths import GOLDEN
from tests.service.logs import logs, patch

Entries = list[tuple[int, int]]


def entries_of(epochs: Sequence[int]) -> Entries:
    """What the file says of a log whose batches hold one record each."""
    changes = [n for n in range(len(epochs)) if not n or epochs[n] != epochs[n - 1]]
    return [(epochs[n], n) for n in changes]


def checked(
    path: Path, epochs: Sequence[int], entries: Entries | str, newest: int | None = None
) -> tuple[list[int], list[str]]:
    """Return the offsets of the batches that are reported, and what is to be repaired."""
    text = entries.encode() if isinstance(entries, str) else format_epochs(entries)
    (path / "leader-epoch-checkpoint").write_bytes(text)
    part = ExpectedPartition(
        topic="t", partition=0, path=str(path), situation=Situation.CLOSED, start=0,
        end=len(epochs), epoch=newest,
    )  # fmt: skip
    table = np.zeros(len(epochs), BATCH_DTYPE)
    table["magic"] = 2
    table["leader_epoch"] = epochs
    table["base_offset"] = table["last_offset"] = np.arange(len(epochs))
    table["position"] = 100 * np.arange(len(epochs))
    check, out = EpochCheck(part), Findings("t", 0)
    check.begin("log")
    check.take(cast(Window, None), cast(Any, table))
    check.finish(LOCAL, out, len(epochs))
    bad = [f for f in out.found if f.severity is Severity.DAMAGE]
    assert all(f.position == 100 * cast(int, f.first) and f.fix is None for f in bad)
    return [cast(int, f.first) for f in bad], [f.what for f in out.found if f.fix is not None]


SOUND: dict[str, list[int]] = {
    "one epoch": [5] * 12,
    "two": [5] * 6 + [7] * 6,
    "three": [2] * 4 + [5] * 4 + [9] * 4,
}


@pytest.mark.parametrize("flipped", [0, 3, 4, 5, 6, 7, 11])
@pytest.mark.parametrize("bit", [0, 1, 2, 3, 5, 30])
@pytest.mark.parametrize("log", SOUND)
def test_a_flipped_batch_is_reported_and_the_file_stays(
    tmp_path: Path, log: str, flipped: int, bit: int
) -> None:
    right = SOUND[log]
    epochs = list(right)
    epochs[flipped] ^= 1 << bit
    assert checked(tmp_path, epochs, entries_of(right)) == ([flipped], [])
    assert checked(tmp_path, epochs, entries_of(right), right[-1]) == ([flipped], [])


@pytest.mark.parametrize("log", SOUND)
def test_a_sound_log(tmp_path: Path, log: str) -> None:
    assert checked(tmp_path, SOUND[log], entries_of(SOUND[log])) == ([], [])


@pytest.mark.parametrize(
    "entries", [[(1, 0), (7, 6)], [(5, 0)], [(5, 0), (7, 4)], [(5, 0), (6, 6)], "0\n1\n5 x\n"]
)
def test_a_damaged_or_older_file_is_made_again(tmp_path: Path, entries: Entries | str) -> None:
    """Many batches contradict it."""
    bad, repairs = checked(tmp_path, [5] * 6 + [7] * 6, entries)
    assert (bad, len(repairs)) == ([], 1)


def test_an_older_file_and_one_batch(tmp_path: Path) -> None:
    """The ledger knows the newest epoch; without it nobody can tell which of both is right."""
    epochs, older = [5] * 6 + [7], [(5, 0)]
    assert len(checked(tmp_path, epochs, older, newest=7)[1]) == 1
    assert checked(tmp_path, epochs, older) == ([6], [])


def test_a_lonely_batch_where_the_file_is_wrong_anyway(tmp_path: Path) -> None:
    bad, repairs = checked(tmp_path, [5] * 6 + [6] + [7] * 6, [(5, 0)])
    assert (bad, len(repairs)) == ([], 1)


def test_most_batches_decide_which_epoch_is_the_odd_one(tmp_path: Path) -> None:
    """Each run fits one of its neighbours."""
    right = [5] * 4 + [7] * 4 + [20] * 4
    epochs = [*right[:4], 20, *right[5:]]
    assert checked(tmp_path, epochs, entries_of(right)) == ([4], [])


def test_most_batches_decide_where_the_file_is_damaged(tmp_path: Path) -> None:
    bad, repairs = checked(tmp_path, [5] * 4 + [7] * 4 + [6], "0\n1\n5 x\n")
    assert (bad, len(repairs)) == ([8], 1)


@pytest.mark.parametrize("at", [0, -1])
def test_repair_leaves_a_valid_file(tmp_path: Path, at: int) -> None:
    """Kafka's own log, whose first or last batch got another epoch."""
    path = Path(shutil.copytree(GOLDEN / "kafka-4.1" / "logdir", tmp_path / "log"))
    directory = next(
        d for d in sorted(path.glob("*-0"))
        if not d.name.startswith("__") and len(scan(logs(d)[at].read_bytes(), path="").table) > 3
    )  # fmt: skip
    file = logs(directory)[at]
    row = scan(file.read_bytes(), path=str(file)).table[at]
    before = (directory / "leader-epoch-checkpoint").read_bytes()
    assert parse_epochs(before, "it")
    patch(file, int(row["position"]) + 12, (int(row["leader_epoch"]) ^ 4).to_bytes(4, "big"))
    report = verify(path, repair=True)
    (damage,) = [f for f in report.findings if f.severity is Severity.DAMAGE]
    assert (damage.file, damage.position) == (str(file), int(row["position"]))
    assert (directory / "leader-epoch-checkpoint").read_bytes() == before
