"""Record batch statistics as a table: a row per topic and codec."""

from collections.abc import Iterable, Mapping
from typing import Final

from sparklog.log.batch_figures import BatchFigures
from sparklog.quantities import size_text

COLUMNS: Final = (
    "topic", "codec", "records a batch", "p50", "p99", "bytes a batch", "p50", "p99",
    "compressed to",
)  # fmt: skip


def batch_rows(batches: Mapping[str, Iterable[BatchFigures]]) -> list[list[str]]:
    """Return the rows for COLUMNS."""
    return [
        [
            topic, each.codec, f"{each.records_avg:.1f}", str(each.records_p50),
            str(each.records_p99), size_text(round(each.bytes_avg)), size_text(each.bytes_p50),
            size_text(each.bytes_p99), _rate(each),
        ]
        for topic, figures in batches.items()
        for each in figures
    ]  # fmt: skip


def _rate(figures: BatchFigures) -> str:
    if figures.codec == "none" or figures.compression_rate is None:
        return "-"
    return f"{figures.compression_rate:.0%}"
