"""`UnfinishedErasure`: an erasure that was begun and isn't complete, as its log tells of it.

No key is in it. `request` is the same for the same request, and no more than 16 bits of a hash of
it: too few to find out from them whose keys they were.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sparklog.storage.erasure_report import ErasureReport

_LEFT_MAX: Final = 3
_TEXT_MAX: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedErasure:
    """Begun at `since_ms` by the process `pid` on `host`; `left`: what it found to be left.

    `left` is empty while it is under way, and for good if that process has died. `erased_ms`: when
    it last took something out of a store, 0 if it never did.
    """

    request: str
    topic: str
    topic_id: str
    since_ms: int
    pid: int
    host: str
    left: tuple[str, ...] = ()
    erased_ms: int = 0

    def copied_until(self, report: ErasureReport, now_ms: int) -> int:
        """Return until when a store may have been given such records, if it keeps versions.

        What came later was written after the records went. `report`: of the erasure as it is now.
        """
        return now_ms if report.took_from_store else max(self.since_ms, self.erased_ms)

    def ended(self, report: ErasureReport, now_ms: int) -> "UnfinishedErasure":
        """Return it as it ended, with what it left."""
        erased_ms = now_ms if report.took_from_store else self.erased_ms
        return replace(self, left=unfinished_parts(report), erased_ms=erased_ms)

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)

    @classmethod
    def parse(cls, fields: Any) -> "UnfinishedErasure | None":
        """Return what `to_dict` gave; None of anything else."""
        if not isinstance(fields, Mapping):
            return None
        try:
            return cls(
                request=str(fields["request"]), topic=str(fields["topic"]),
                topic_id=str(fields["topic_id"]), since_ms=int(fields["since_ms"]),
                pid=int(fields["pid"]), host=str(fields["host"]),
                left=tuple(str(one) for one in fields["left"]),
                erased_ms=int(fields.get("erased_ms", 0)),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError):
            return None


def unfinished_parts(report: ErasureReport) -> tuple[str, ...]:
    """Return the first few things that an erasure left, in words; nothing if it is complete."""
    failed = [f"{p.topic}-{p.partition}: {p.error}" for p in report.partitions if p.error]
    found: Collection[str] = [*report.errors, *failed, *report.pending]
    return tuple(one[:_TEXT_MAX] for one in list(found)[:_LEFT_MAX])
