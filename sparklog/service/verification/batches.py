"""Counts batches during a verification: how large they are, and how well they compress."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from numpy.typing import NDArray

from sparklog.log.batch_figures import BatchFigures, BatchTally, small_batches
from sparklog.log.batch_windows import Window
from sparklog.service.verification.findings import Finding, Findings, Severity

Table = NDArray[Any]
_RATED_EACH: Final = 16  # decompress batches in every 16th window (4 MiB) of a segment
_RATED_BYTES: Final = 64 << 10


class BatchCheck:
    """A `Consumer` over segments. Counts all batches, and samples their uncompressed sizes.

    Cost: about 1 % of the pass.
    """

    def __init__(self) -> None:
        self.tally = BatchTally()
        self._windows = 0

    def begin(self) -> None:
        """Begin another segment."""
        self._windows = 0

    def take(self, window: Window, table: Table) -> None:
        """Count the batches of a window."""
        self.tally.take(table)
        if self._windows % _RATED_EACH == 0:
            self.tally.rate(table, window.data, window.position, budget=_RATED_BYTES)
        self._windows += 1


def topic_figures(
    tallies: Iterable[tuple[str, BatchTally]],
) -> dict[str, tuple[BatchFigures, ...]]:
    """Return {topic: figures} of its partitions' tallies, by name."""
    topics: dict[str, BatchTally] = {}
    for topic, tally in tallies:
        topics.setdefault(topic, BatchTally()).add(tally)
    return {topic: topics[topic].figures(sampled=False) for topic in sorted(topics)}


def small_batch_warnings(
    batches: Mapping[str, tuple[BatchFigures, ...]], places: Mapping[str, str]
) -> list[Finding]:
    """Warn once per topic whose compressed batches contain hardly more than one record each.

    `places` is {topic: directory or URL}.
    """
    found: list[Finding] = []
    for topic, figures in batches.items():
        hint = small_batches(figures, sum(each.bytes for each in figures))
        if hint is not None:
            out = Findings(topic)
            out.add(Severity.WARNING, places[topic], hint)
            found += out.found
    return found
