"""Each rule that several places implement, and the places, as they are found in the source.

A place is a line of sparklog/diskless. Each has a switch: a mutant whose text has the line, which
a test catches (`make test-mutants`), and which the model plays where its schedules get there
(`switching.PLAYED`). So a new place without a test is noticed. `python -m tests.diskless.model
--places` prints the table.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants import MUTANTS
from tests.paths import ROOT

DISKLESS: Final = ROOT / "sparklog" / "diskless"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of PROTOCOL.md; `line`: a pattern of the lines that implement it."""

    name: str
    says: str
    line: str


@dataclass(frozen=True, slots=True)
class RulePlace:
    """A line that implements a rule; `mutants`: those that switch it off."""

    rule: Rule
    file: str
    number: int
    text: str
    mutants: tuple[str, ...]


RULES: Final = (
    Rule(
        "create", "no name gets a second meaning: what decides is created, never put",
        r"\.create\((name|HOME|IMPORT|state_name|endpoint_name)",
    ),
    Rule(
        "attempt", "an entry is one's own by its attempt's id alone",
        r"\.id (==|!=) (entry\.id|noop\.id|attempt|entry_id)",
    ),
    Rule(
        "term", "an entry of a service needs its term to be the log's",
        r"\b(now|record|_log\.state)\.term (!=|==|>=?|<=?) ",
    ),
    Rule(
        "topic", "what was decided of a topic says nothing of another one with its name",
        r"(topic|known|record)\.id (!=|==) (?!record)|topic_id (!=|==) |\.id == record\.topic_id",
    ),
    Rule(
        "void", "a merge is void if its extents are not there",
        r"find\(known, record\.sources\) < 0|_expect\(at >= 0|^ +if at < 0:",
    ),
    Rule("floor", "what was staged below the stage floor is not committed", r"[<>]=? \w+\.floor\b"),
    Rule(
        "named", "an object that an extent names is not deleted, nor are inline data cut",
        r"\b(if|and|or) [\w.]+ (not )?in (live|named|inline|tabled)\b|& self\._garbage\.live",
    ),
    Rule("deleted", "a deleted topic's objects are named", r"\.kept_extents\(\)"),
    Rule("past", "a segment of the own term may be on its way", r"\bis_past\((?!segment_id)"),
    Rule("keep", "an entry is never deleted: it is cut", r"raw\[: stored\.entry\.data_at\]"),
    Rule(
        "manifest", "what covers the offsets has a manifest before anything goes",
        r"\.make_manifest\(",
    ),
    Rule("reset", "a commit that was begun before a reset is refused", r"\bseen < reset\b"),
    Rule(
        "history", "two histories of a log are never mixed",
        r"\.prev != self\.entry_id|state\.entry_id\) !=|entry\.id != entry_id|not all\(each in raw",
    ),
    Rule(
        "bytes", "bytes are those that were committed",
        r"\bcrc != (extent\.)?crc\b|crc == extent\.crc|crc32c for log in made|found != number",
    ),
)  # fmt: skip

NO_SWITCH: Final = {
    "if now.term >= term:": "a repair, with all writers stopped; a lower term contradicts",
    "elif not store.create(name, raw):": "a repair, with all writers stopped",
    "if store.create(name, encode(now.next_number, entry)):": "a repair, with writers stopped",
    "store.create(state_name(state.log_id, state.number), raw)": "a cache; each reader checks it",
    "won = self._store.create(name, _body(creator))": "the trial of a store",
    "made = self._store.create(name, _body((before + 1) % max(2, self._creators)))": "the same",
    "if topic is None or topic.id != one.topic_id:":
        "offsets of a topic that was made again lie above the old ones, so none is covered",
    "is_same = topic is not None and topic.id == waiting.topic_id": "the same",
    "is_deleted = topic is None or topic.id != merge.topic_id":
        "for the report: extents of another topic are not there",
    "if state is None or state.topic_id != self._state.topic_id:":
        "extents of another topic have other places",
    "if each.name in self._named and each.name not in live": "both sweeps look again",
    "held = [name for name in held if name not in named]": "for the report",
    "is_new = extent.object in new.keys and extent.object not in named": "an estimate of bytes",
    "return self._merger.make_manifest(key, extent, self._log.follow())": "the repair itself",
    "if at < 0:": "an entry of a merge is only folded where its extents are",
    "if not heartbeats or not state.number > state.floor:": "spares a look: a floor never falls",
    "if floor <= state.floor:": "the same",
    "if now.floor >= floor:": "the same",
}  # fmt: skip
"""{line: why nothing would be wrong without it}."""


def places() -> Iterator[RulePlace]:
    """Yield all places of all rules, but those of NO_SWITCH."""
    switched = _switched_lines()
    for file in sorted(DISKLESS.glob("*.py")):
        lines = file.read_text().splitlines()
        for rule in RULES:
            for number, line in enumerate(lines, 1):
                text = line.strip()
                if re.search(rule.line, line) and text not in NO_SWITCH and _is_code(text):
                    mutants = tuple(switched.get((file.name, number), ()))
                    yield RulePlace(rule, file.name, number, text, mutants)


def _is_code(text: str) -> bool:
    return not text.startswith(("#", '"', "def ")) and "Entry(...," not in text


def _switched_lines() -> dict[tuple[str, int], list[str]]:
    """{(file, line): the mutants whose text has it}."""
    found: dict[tuple[str, int], list[str]] = {}
    for mutant in MUTANTS:
        path = Path(mutant.file)
        if path.parent.name != DISKLESS.name:
            continue
        before, _, _ = (ROOT / path).read_text().partition(mutant.old)
        first = before.count("\n") + 1
        for number in range(first, first + mutant.old.rstrip("\n").count("\n") + 1):
            found.setdefault((path.name, number), []).append(mutant.name)
    return found


def table() -> str:
    """Return rules, places and switches, for people."""
    found = sorted(places(), key=lambda place: RULES.index(place.rule))
    lines: list[str] = []
    for rule in RULES:
        lines += ["", f"{rule.name}: {rule.says}"]
        for place in found:
            if place.rule == rule:
                where = f"{place.file}:{place.number}"
                lines.append(f"  {where:28} {', '.join(place.mutants) or 'NO SWITCH'}")
    return "\n".join(lines[1:])
