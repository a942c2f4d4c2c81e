"""Finds topics with segments that are so small that they are costly."""

import statistics
from collections.abc import Iterable
from typing import Final

from sparklog.service.verification.findings import Finding, Findings, Severity
from sparklog.service.verification.partition import Checked

SMALL_SHARE: Final = 10  # warn of a median below 1/10 of segment.bytes
CLOSED_LEAST: Final = 5  # minimum number of closed segments of the topic


def small_segments(partitions: Iterable[Checked]) -> list[Finding]:
    """Warn once per topic if its median closed segment is below a tenth of segment.bytes.

    Compacted topics are exempt: the cleaner shrinks and joins their segments.
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
