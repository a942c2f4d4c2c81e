"""What a verification of a checkpoint found."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sparklog.service.verification.findings import BAD, FINDINGS_SCHEMA, Finding, Severity


@dataclass(slots=True, kw_only=True)
class CheckpointReport:
    """The result of `verify`. `batches`: that are retained; `bytes`: of the files read.

    `latest`: the newest batch that the query, a fork or a reset can continue behind; None if none.
    `outlook`: what all of it means for the query's next start.
    """

    path: str
    is_log_backed: bool
    batches: list[int] = field(default_factory=list)
    latest: int | None = None
    outlook: str = ""
    stores: int = 0
    files: int = 0
    bytes: int = 0
    took_ms: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there is no damage and no difference, but for what was repaired right now."""
        return not any(f.severity in BAD and not f.repaired for f in self.findings)

    def counts(self) -> dict[str, int]:
        """{severity: number of findings}."""
        found = Counter(str(f.severity) for f in self.findings)
        return {str(severity): found[str(severity)] for severity in Severity}

    def table(self) -> pa.Table:
        """The findings, a row each."""
        return pa.Table.from_pylist([f.to_dict() for f in self.findings], schema=FINDINGS_SCHEMA)

    def to_dict(self) -> dict[str, Any]:
        """The whole report as JSON takes it."""
        return {
            "ok": self.ok,
            "path": self.path,
            "log_backed": self.is_log_backed,
            "batches": self.batches,
            "latest": self.latest,
            "outlook": self.outlook,
            "stores": self.stores,
            "files": self.files,
            "bytes": self.bytes,
            "took_ms": round(self.took_ms, 1),
            "counts": self.counts(),
            "findings": [f.to_dict() for f in self.findings],
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {severity}" for severity, n in self.counts().items() if n)
        span = f"{self.batches[0]}..{self.batches[-1]}" if self.batches else "none"
        head = (
            f"{self.path}: batches {span}, {self.stores} state stores, {self.files} files, "
            f"{self.bytes} bytes: {counts or 'nothing found'}"
        )
        outlook = [] if self.ok else [self.outlook]
        return "\n".join([head, *map(str, self.findings), *outlook])
