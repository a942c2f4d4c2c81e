"""One damaged log through all actions; and the rules that no row of a table may break."""

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.damage.actions import failed, quoted
from tests.damage.compare import (
    RIGHT,
    WRONG,
    appended_to,
    changes_for_the_worse,
    without_times,
    word_of,
)
from tests.damage.model import Failed, Files, Home, Kind, Place, Reading, Verdict
from tests.damage.promises import broken_promise

_ADVICE: Final = re.compile(
    r"`sparklog |\b(restore|delete|remove|correct|open|wait|give|run|start|set|use|read|make|begin|"
    r"upgrade|repair|try|ask|reset|write)\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Row:
    """What became of one damage: the word of each action, and the rules that it breaks."""

    words: dict[str, str] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    texts: dict[str, str] = field(default_factory=dict)
    commands: set[str] = field(default_factory=set)
    repaired_commands: set[str] = field(default_factory=set)

    def heard(self, action: str, text: str, commands: tuple[str, ...] = ()) -> None:
        """Keep what an action printed, and the commands that it quotes.

        The report of a repair is about the repaired log, and so are its commands.
        """
        self.texts[action] = text
        kept = self.repaired_commands if action == "repair" else self.commands
        kept.update(commands or quoted(text))


class Judge:
    """Judges damages of one home."""

    def __init__(self, home: Home) -> None:
        self._home, self._actions = home, home.actions
        with home.lay_out(home.files) as place:
            self.truth = self._actions.read(place.path)
        assert not any(isinstance(rows, Failed) for rows in self.truth.values()), self.truth

    def row(self, files: Files, kind: Kind | None = None, damage: str = "") -> Row:
        """Run everything on copies of a damaged log."""
        row = Row()
        self._look(files, row, kind)
        self._open_for_writing(files, row)
        self._write(files, row)
        self._repair(files, row)
        self._round(files, row)
        self._run_commands(files, row)
        for action, text in row.texts.items():
            row.broken |= {
                f"{action}: says {words!r}" for words in self._home.foreign_words if words in text
            }
        if row.words["write"] == "ok" and row.words["read"] == RIGHT and "unwritable" in row.texts:
            row.broken.add("status: says it can't be written, and appends work")
        if kind is not None and damage in kind.undetectable:
            row.broken = {rule for rule in row.broken if "worse" in rule or "bare" in rule}
        if kind is not None and damage in kind.unread:
            seen = row.words["verify"] == "damage"
            excused = ("read: wrong", "status: green") if seen else ()
            row.broken = {rule for rule in row.broken if not rule.startswith(excused)}
        return row

    # --- actions ------------------------------------------------------------------------------

    def _shows(self, files: Files, kind: Kind | None) -> bool:
        """Whether `status`, which reads no records, can notice a damage."""
        if kind is None or not kind.holds_records:
            return True
        sizes = {name: len(data) for name, data in files.items()}
        return sizes != {name: len(data) for name, data in self._home.files.items()}

    def _look(self, files: Files, row: Row, kind: Kind | None) -> None:
        """What changes nothing: open for reading, read, verify, status."""
        with self._home.lay_out(files) as place:
            row.words["r"] = self._tried(row, "r", lambda: self._actions.open_r(place.path))
            found = self._actions.read(place.path)
            self._note_reading(row, "read", found)
            for action, run, good in (
                ("verify", self._actions.verify, "ok"), ("status", self._actions.status, "green"),
            ):  # fmt: skip
                verdict = self._verdict(row, action, run, place)
                row.words[action] = verdict.word
                sees = action != "status" or self._shows(files, kind)
                if verdict.word == good and row.words["read"] != RIGHT and sees:
                    row.broken.add(f"{action}: {good}, and a read is {row.words['read']}")
                if action == "status" and verdict.is_unwritable:
                    row.texts["unwritable"] = verdict.text
            if place.files() != files:
                row.broken.add("looking: changed the log")

    def _open_for_writing(self, files: Files, row: Row) -> None:
        with self._home.lay_out(files) as place:
            row.words["rw"] = self._tried(row, "rw", lambda: self._actions.open_rw(place.path))

    def _write(self, files: Files, row: Row) -> None:
        with self._home.lay_out(files) as place:
            before = self._actions.read(place.path)
            try:
                added = self._actions.append(place.path)
            except Exception as error:
                self._refused(row, "write", failed(error))
                row.words["write"] = "refused"
                after = self._actions.read(place.path)
            else:
                row.words["write"] = "ok"
                after = without_times(self._actions.read(place.path), added)
                if row.words["read"] == RIGHT:
                    word = word_of(after, appended_to(self.truth, added))
                    if word != RIGHT:
                        row.broken.add(f"write: acknowledged, and a read is {word} then")
                    return
                after = _without(after, added)
            self._check_worse(row, "write", before, after)

    def _repair(self, files: Files, row: Row) -> None:
        with self._home.lay_out(files) as place:
            before = self._actions.read(place.path)
            verdict = self._verdict(row, "repair", self._actions.repair, place)
            after = self._actions.read(place.path)
            self._check_worse(row, "repair", before, after, told="lost" in verdict.text)
            word, again = word_of(after, self.truth), Verdict("refused")
            if verdict.word != "refused":
                again = self._verdict(Row(), "verify", self._actions.verify, place)
            if verdict.word != again.word:
                row.broken.add(f"repair: says {verdict.word}, and verify {again.word} then")
            is_told = row.words["verify"] == "ok" or "lost" in verdict.text
            if verdict.word == "ok" and word != RIGHT and not is_told:
                row.broken.add(f"repair: ok, and a read is {word}")
            row.words["repair"] = verdict.word if verdict.word != "ok" else (
                "nothing" if row.words["verify"] == "ok" else "healed" if word == RIGHT else "cut"
            )  # fmt: skip

    def _round(self, files: Files, row: Row) -> None:
        with self._home.lay_out(files) as place:
            before = self._actions.read(place.path)
            row.words["round"] = self._verdict(row, "round", self._actions.round, place).word
            self._check_worse(row, "round", before, self._actions.read(place.path))

    def _run_commands(self, files: Files, row: Row) -> None:
        """Run each quoted command on a copy of its own. A path stands for that of the copy."""
        told = {self._without_path(words) for words in row.commands}
        after_repair = {self._without_path(words) for words in row.repaired_commands} - told
        for words in sorted(told | after_repair):
            with self._home.lay_out(files) as place:
                if words in after_repair:
                    with contextlib.suppress(Exception):  # `_repair` has noted it
                        self._actions.repair(place.path)
                here = words.replace("PATH", place.path)
                problem = broken_promise(here, place, self._actions, self.truth)
            if problem is not None:
                problem = problem.replace(place.path, "PATH")
                row.broken.add(f"command: sparklog {words}: {problem}")

    # --- words --------------------------------------------------------------------------------

    def _tried(self, row: Row, action: str, run: Callable[[], Any]) -> str:
        try:
            run()
        except Exception as error:
            self._refused(row, action, failed(error))
            return "refused"
        return "ok"

    def _verdict(
        self, row: Row, action: str, run: Callable[[str], Verdict], place: Place
    ) -> Verdict:
        try:
            verdict = run(place.path)
        except Exception as error:
            self._refused(row, action, failed(error))
            return Verdict("refused")
        row.heard(action, verdict.text, verdict.commands)
        return verdict

    def _refused(self, row: Row, action: str, error: Failed) -> None:
        row.heard(action, error.message)
        if error.is_bare:
            row.broken.add(f"{action}: a bare error, {error.message.partition(':')[0]}")
        elif not _ADVICE.search(error.message.partition(": ")[2]):
            row.broken.add(f"{action}: no advice")

    def _note_reading(self, row: Row, action: str, found: Reading) -> None:
        row.words[action] = word_of(found, self.truth)
        if row.words[action] == WRONG:
            row.broken.add(f"{action}: wrong, and no error")
        for error in found.values():
            if isinstance(error, Failed):
                self._refused(row, action, error)

    def _check_worse(
        self, row: Row, action: str, before: Reading, after: Reading, *, told: bool = False
    ) -> None:
        worse = changes_for_the_worse(before, after, self.truth)
        if worse and not told:
            row.broken.add(f"{action}: makes it worse: {worse[0]}")

    @staticmethod
    def _without_path(words: str) -> str:
        return re.sub(r"(memory|file)://\S+|/\S+", "PATH", words)


def _without(found: Reading, added: Mapping[str, Any]) -> Reading:
    """Take the appended rows away again, for a comparison with what was there before."""
    shorter = dict(found)
    for part, values in added.items():
        rows = found.get(part)
        if isinstance(rows, tuple) and rows:
            start, end = rows[0]
            kept = rows[1:][: len(rows) - 1 - len(values)]
            shorter[part] = ((start, end - len(values)), *kept)
    return shorter
