"""The advice to restore files or objects from a copy, for every kind of them in every home.

A damaged log is read, verified, opened for writing and served, as a user does who finds the
damage. If one of these calls advises to restore something, the damaged files are restored, and no
others. Then all records must be there, an append must work, and `verify --repair` must leave
nothing that `verify` finds.
"""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from tests.damage import bucket, checkpoint, killed_log_dir, log_dir, stored_checkpoint, tier
from tests.damage.actions import failed, without_waiting
from tests.damage.checks import kinds_in, rows_of
from tests.damage.compare import RIGHT, appended_to, without_times, word_of
from tests.damage.model import Failed, Files, Home, Place, Reading
from tests.depth import RESTORED_EVERY

HOMES = {
    "log_dir": log_dir,
    "killed_log_dir": killed_log_dir,
    "bucket": bucket,
    "tier": tier,
    "checkpoint": checkpoint,
    "stored_checkpoint": stored_checkpoint,
}
RESTORE = re.compile(r"\brestore (?!point)", re.IGNORECASE)


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        pytest.param(home, kind, id=f"{name}: {kind}")
        for name, home in HOMES.items()
        for kind in kinds_in(name)
    ],
)
def test_what_is_restored_is_whole(module: ModuleType, kind: str) -> None:
    home: Home = module.home()
    with without_waiting(), home.lay_out(home.files) as place:
        truth = home.actions.read(place.path)
    told = []
    for at, (found, damage, files) in enumerate(rows_of(home)):
        if found.name == kind and at % RESTORED_EVERY == 0:
            with without_waiting():
                told += [f"{damage}: {what}" for what in restored(home, files, truth)]
    assert not told, "\n".join(told)


def restored(home: Home, files: Files, truth: Reading) -> list[str]:
    """Follow the advice to restore; return what is wrong afterwards."""
    with home.lay_out(files) as place:
        advice = answers(home, place)
        if not any(RESTORE.search(text) for text in advice):
            return []
        now = place.files()
        lost = {name for name, data in home.files.items() if files.get(name) != data}
        more = files.keys() - home.files.keys()
        whole = {name: data for name, data in now.items() if name not in more}
        whole |= {name: home.files[name] for name in lost}
        return still_wrong(home, whole, truth, "; ".join(advice))


def answers(home: Home, place: Place) -> list[str]:
    """Run what a user runs; return all that is told. Appends nothing where that works."""
    actions, texts = home.actions, []
    for call in (actions.open_r, actions.verify, actions.status, actions.open_rw, actions.round):
        try:
            verdict = call(place.path)
        except Exception as error:
            texts.append(failed(error).message)
            if call is actions.open_rw:
                texts.append(append_refused(home, place))
        else:
            texts.append("" if verdict is None else verdict.text)
    found = actions.read(place.path)
    return texts + [rows.message for rows in found.values() if isinstance(rows, Failed)]


def append_refused(home: Home, place: Place) -> str:
    """Append to a log that can't be opened for writing; return the error."""
    try:
        home.actions.append(place.path)
    except Exception as error:
        return failed(error).message
    if home.name == "stored_checkpoint":  # a reset reads no state files, a fork reads all of them
        return ""
    raise AssertionError("what could not be opened was written to")


def still_wrong(home: Home, files: Files, truth: Reading, advice: str) -> list[str]:
    """Return what is wrong with a log whose files were restored."""
    with home.lay_out(files) as place:
        word = word_of(home.actions.read(place.path), truth)
        if word != RIGHT:
            return [f"a read is {word}: {home.actions.read(place.path)}\n{advice}"]
        try:
            added = home.actions.append(place.path)
        except Exception as error:
            return [f"an append is refused: {error}\n{advice}"]
        word = word_of(
            without_times(home.actions.read(place.path), added), appended_to(truth, added)
        )
        if word != RIGHT:
            return [f"after an append a read is {word}\n{advice}"]
        verdict = home.actions.repair(place.path)  # what a writer has rebuilt of the damaged files
        word = word_of(
            without_times(home.actions.read(place.path), added), appended_to(truth, added)
        )
        is_whole = word == RIGHT and home.actions.verify(place.path).word == "ok"
        return [] if is_whole else [f"a repair says {verdict.text}\n{advice}"]
