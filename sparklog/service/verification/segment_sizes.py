"""Notes topics whose segments are too small: sound, but costly."""

import statistics
from collections.abc import Iterable
from typing import Final

from sparklog.service.verification.findings import Finding, Findings, Severity
from sparklog.service.verification.partition import Checked

SMALL_SHARE: Final = 10  # a median below a tenth of segment.bytes is worth a word
CLOSED_LEAST: Final = 5  # of so many closed segments of the topic at least


def small_segments(partitions: Iterable[Checked]) -> list[Finding]:
    """Warn, once a topic, of a median closed segment below a tenth of segment.bytes.

    Not of compacted topics: the cleaner shrinks their segments, and joins them again.
    """
    topics: dict[str, list[Checked]] = {}
    for checked in partitions:
        config = checked.part.config
        if config is not None and not config.compact:
            topics.setdefault(checked.part.topic, []).append(checked)
    found: list[Finding] = []
    for topic, group in topics.items():
        part = group[0].part
        closed = [size for checked in group for size in checked.closed_bytes]
        if len(closed) < CLOSED_LEAST or part.config is None:
            continue
        median, wanted = statistics.median_low(closed), part.config.roll_bytes
        if median * SMALL_SHARE < wanted:
            out = Findings(topic)
            out.add(
                Severity.WARNING,
                part.path,
                f"half of the topic's {len(closed)} closed segments have at most {median} bytes, "
                f"segment.bytes is {wanted}: many small files are slow to list and to tier; raise "
                "segment.ms, or commit larger batches",
            )
            found += out.found
    return found
