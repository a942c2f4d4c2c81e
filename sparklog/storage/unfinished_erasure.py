"""`UnfinishedErasure`: the log's record of an erasure that was started and is not complete.

The record contains no key. `request` identifies equal requests by at most 16 bits of a hash of the
request, which are too few to find out the keys.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sparklog.storage.erasure_report import ErasureReport

_LEFT_MAX: Final = 3
_TEXT_MAX: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedErasure:
    """An erasure that is not complete.

    Attributes:
        request: Identifies equal requests, see above.
        topic: The name of the topic.
        topic_id: The topic id.
        since_ms: When the erasure was started, ms.
        pid: The process that started the erasure.
        host: The host of this process.
        left: Descriptions of the places that remain to be erased. Empty while the erasure runs; it
            stays empty if the process died.
        erased_ms: When the erasure last removed data from an object store, ms; 0 if never.
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
        """Return the time up to which objects with erased records may have been written.

        A store with object versions may still contain these objects. Objects written later do not
        contain erased records. `report`: the erasure's current report.
        """
        return now_ms if report.took_from_store else max(self.since_ms, self.erased_ms)

    def ended(self, report: ErasureReport, now_ms: int) -> "UnfinishedErasure":
        """Return the erasure's record after the end, with the places that remain to be erased."""
        erased_ms = now_ms if report.took_from_store else self.erased_ms
        return replace(self, left=unfinished_parts(report), erased_ms=erased_ms)

    def to_dict(self) -> dict[str, Any]:
        """Return the erasure as a dict for JSON."""
        return asdict(self)

    @classmethod
    def parse(cls, fields: Any) -> "UnfinishedErasure | None":
        """Rebuild an erasure from the result of `to_dict`. Malformed `fields` give None."""
        if not isinstance(fields, Mapping):
            return None
        try:
            return cls(
                request=str(fields["request"]), topic=str(fields["topic"]),
                topic_id=str(fields["topic_id"]), since_ms=int(fields["since_ms"]),
                pid=int(fields["pid"]), host=str(fields["host"]),
                left=tuple(str(part) for part in fields["left"]),
                erased_ms=int(fields.get("erased_ms", 0)),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError):
            return None


def unfinished_parts(report: ErasureReport) -> tuple[str, ...]:
    """Return descriptions of the first few parts that an erasure left; () if complete."""
    failed = [f"{p.topic}-{p.partition}: {p.error}" for p in report.partitions if p.error]
    parts: Collection[str] = [*report.errors, *failed, *report.pending]
    return tuple(part[:_TEXT_MAX] for part in list(parts)[:_LEFT_MAX])
