"""Findings of a verification, with their places and their fixes."""

import enum
import os
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow as pa

from sparklog.html import foreign, table
from sparklog.log.batch_figures import BatchFigures
from sparklog.pluralize import pluralize
from sparklog.service.health.model import Health, Level


class Severity(enum.StrEnum):
    """The severity of a finding. Damage and differences make a log not ok.

    Examples:
        >>> from sparklog.service import Severity
        >>> [str(severity) for severity in Severity]
        ['damage', 'difference', 'leftover', 'warning']
    """

    DAMAGE = "damage"  # records, or facts that can't be derived, are lost or wrong
    DIFFERENCE = "difference"  # files contradict each other; derived files can be rebuilt
    LEFTOVER = "leftover"  # of a crash or background work: harmless, or resolved by opening
    WARNING = "warning"  # no fault, but an operation will be slow or rejected


class FixKind(enum.Enum):
    """The kinds of repairs. The value is the text of the repair plan.

    Examples:
        >>> from sparklog.service import FixKind
        >>> FixKind.INDEXES.value
        "rebuild the segment's indexes from its log"
    """

    INDEXES = "rebuild the segment's indexes from its log"
    SNAPSHOT = "set it aside and rebuild it from an older snapshot and the log"
    EPOCHS = "rebuild it from the batches of the log"
    METADATA = "set it aside and rewrite it from the ledger"
    CHECKPOINT = "rewrite it from the ledger and the logs"
    COMMIT_LEDGER = "rebuild the commit ledger from its surviving records and from other files"
    WATERMARKS = "rewrite it from the ledger"
    TOPICS = "rewrite the topics file from the ledger"
    ASIDE = "move it to quarantine"
    SEGMENT_ASIDE = "move the segment to quarantine, because all of it is below the log start"
    TAIL = "move the bytes past the end to quarantine"
    REMOTE = "rewrite both files from the undamaged one"
    OPEN = "open the log for writing, which recovers it"
    STATE = "move it to quarantine/ and write the newest state again from the ledger"
    MANIFEST = "write it again from the segment's log"
    SEGMENT = "write the segment again from the objects that it was merged from, while they exist"
    LEDGER = "give up the entries after the last readable one (stop all writers first)"
    POSITION = "move it to quarantine/: the group continues at its position before"
    OWNER = "write the topic's owner object again"
    HOME = "write the object again from the log id in the names of the ledger's objects"


@dataclass(frozen=True, slots=True)
class Fix:
    """A repair.

    Attributes:
        kind: The kind of repair.
        path: The file or object.
        offset: The base offset of the segment, or the offset of the snapshot; -1 without either.

    Examples:
        >>> from sparklog.service import Fix, FixKind
        >>> Fix(FixKind.TOPICS, "log/sparklog.topics").kind
        <FixKind.TOPICS: 'rewrite the topics file from the ledger'>
    """

    kind: FixKind
    path: str
    offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A violated invariant.

    Attributes:
        severity: The severity.
        what: A description.
        file: The path of the file.
        topic: The topic, if the finding concerns a topic.
        partition: The partition, if the finding concerns a partition.
        position: The byte position in the file.
        first: The first offset concerned.
        end: The offset after the last offset concerned, if known.
        fix: The repair; without a repair the file must be restored from a copy.
        repaired: Whether this call repaired the finding.

    Examples:
        >>> import pathlib
        >>> from sparklog.service import verify
        >>> log.close()
        >>> pathlib.Path("log/flights-0/00000000000000000000.timeindex").unlink()
        >>> finding, = verify("log").findings
        >>> str(finding.severity), finding.repair
        ('difference', "rebuild the segment's indexes from its log")
    """

    severity: Severity
    what: str
    file: str
    topic: str | None = None
    partition: int | None = None
    position: int | None = None
    first: int | None = None
    end: int | None = None
    fix: Fix | None = None
    repaired: bool = False

    @property
    def repair(self) -> str | None:
        """Description of the repair, unless the file must be restored from a copy."""
        return None if self.fix is None else self.fix.kind.value

    @property
    def place(self) -> tuple[object, ...]:
        """Identity of a finding, to compare two verifications."""
        return self.severity, self.file, self.position, self.first, self.what

    @property
    def where(self) -> str:
        """The file with byte position and offsets, as far as they are known."""
        where = self.file if self.position is None else f"{self.file} at byte {self.position}"
        if self.first is not None:
            where += f", offsets [{self.first}, {'?' if self.end is None else self.end})"
        return where

    @property
    def state(self) -> str:
        """The severity, and whether the finding was repaired."""
        return f"{self.severity}, repaired" if self.repaired else str(self.severity)

    def __str__(self) -> str:
        return f"{self.state}: {self.where}: {self.what}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        fields = asdict(self)
        fields.pop("fix")
        return {**fields, "severity": str(self.severity), "repair": self.repair}


FINDINGS_SCHEMA: Final = pa.schema(
    [
        ("severity", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("first", pa.int64()),
        ("end", pa.int64()),
        ("what", pa.string()),
        ("repair", pa.string()),
        ("repaired", pa.bool_()),
    ]
)
BAD: Final = frozenset({Severity.DAMAGE, Severity.DIFFERENCE})
_RANK: Final = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(slots=True, kw_only=True)
class Verification:
    """The result of `verify`.

    Attributes:
        directories: The log dirs, or the URL.
        situation: How the log was left: open, crashed, closed, or a broker's.
        findings: The findings, worst first.
        partitions: The number of partitions of topics.
        segments: The number of their segments.
        bytes: The size of their segments. The ledger's segments are read, but not counted.
        took_ms: The duration, in milliseconds.
        done: The changes of a repair, in order.
        refused: Why the repair was refused.
        unseen: Parts that were not checked.
        batches: {topic: figures of all its batches, a row per codec}, without internal topics.
        health: The log's health, for `quick`.

    Examples:
        >>> from sparklog.service import verify
        >>> report = verify("log", quick=True)
        >>> report.counts()["damage"]
        0
    """

    directories: list[str]
    situation: str
    findings: list[Finding] = field(default_factory=list)
    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    took_ms: float = 0.0
    done: list[str] = field(default_factory=list)
    refused: str | None = None
    unseen: str | None = None
    batches: dict[str, tuple[BatchFigures, ...]] = field(default_factory=dict)
    health: Health | None = None

    @property
    def ok(self) -> bool:
        """Whether no damage or difference remains, and the health, if known, is not red."""
        if self.health is not None and self.health.level is Level.RED:
            return False
        return not any(f.severity in BAD and not f.repaired for f in self.findings)

    @property
    def plan(self) -> str:
        """The repair plan, a line per finding; "" if there are none."""
        lines = [
            f"{'done' if f.repaired else f.repair or 'no repair'}: {f}"
            for f in self.findings
            if f.severity is not Severity.WARNING
        ]
        return "\n".join(lines)

    def counts(self) -> dict[str, int]:
        """Return {severity: number of findings}."""
        found = Counter(str(f.severity) for f in self.findings)
        return {str(severity): found[str(severity)] for severity in Severity}

    def to_table(self) -> pa.Table:
        """Return the findings as a table with a row each."""
        return pa.Table.from_pylist([f.to_dict() for f in self.findings], schema=FINDINGS_SCHEMA)

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "ok": self.ok,
            "directories": self.directories,
            "situation": self.situation,
            "partitions": self.partitions,
            "segments": self.segments,
            "bytes": self.bytes,
            "took_ms": round(self.took_ms, 1),
            "counts": self.counts(),
            "batches": {
                topic: [asdict(each) for each in figures] for topic, figures in self.batches.items()
            },
            "findings": [f.to_dict() for f in self.findings],
            "done": self.done,
            "refused": self.refused,
            "unseen": self.unseen,
            **({} if self.health is None else {"health": self.health.to_dict()}),
        }

    def _repr_html_(self) -> str:
        head, *lines = str(self).splitlines()
        return findings_html(head, self.findings, lines[len(self.findings) :])

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {severity}" for severity, n in self.counts().items() if n)
        what = ", ".join(
            pluralize(number, noun)
            for number, noun in (
                (self.partitions, "partition"), (self.segments, "segment"), (self.bytes, "byte"),
            )
        )  # fmt: skip
        where = f"{','.join(self.directories)} ({self.situation})"
        head = f"{where}: {what}: {counts or 'nothing found'}"
        refused = [] if self.refused is None else [f"not repaired: {self.refused}"]
        unseen = [] if self.unseen is None else [f"not looked at: {self.unseen}"]
        return "\n".join([head, *map(str, self.findings), *self.done, *refused, *unseen])


class Findings:
    """Collects findings of a topic, of a partition, or of the log. Thread-safe."""

    def __init__(self, topic: str | None = None, partition: int | None = None) -> None:
        self._topic, self._partition = topic, partition
        self._lock = threading.Lock()
        self.found: list[Finding] = []

    def add(
        self,
        severity: Severity,
        file: str,
        what: str,
        *,
        position: int | None = None,
        first: int | None = None,
        end: int | None = None,
        fix: FixKind | None = None,
        offset: int = -1,
    ) -> None:
        """Add a finding. `fix`: the repair of `file`."""
        finding = Finding(
            severity=severity,
            what=what,
            file=file,
            topic=self._topic,
            partition=self._partition,
            position=position,
            first=first,
            end=end,
            fix=None if fix is None else Fix(fix, file, offset),
        )
        with self._lock:
            self.found.append(finding)

    @property
    def damaged(self) -> bool:
        """Whether any finding is damage."""
        return any(f.severity is Severity.DAMAGE for f in self.found)


def findings_html(head: str, findings: Sequence[Finding], notes: Iterable[str]) -> str:
    """Return an HTML table of findings for notebooks, between a heading and notes."""
    rows = [(f.state, foreign(f.where), foreign(f.what), f.repair) for f in findings]
    return table(foreign(head), ("severity", "where", "what", "repair"), rows, notes=notes)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings sorted by severity (worst first), file and position."""
    return sorted(
        findings,
        key=lambda f: (_RANK[f.severity], os.path.dirname(f.file), f.file, f.position or 0),
    )
