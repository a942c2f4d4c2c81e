"""Statistics of the commit ledger by writer and time, and of the registered readers."""

from typing import Final, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.log.topic_names import INTERNAL
from sparklog.ui.report.model import CommitsReport, ReaderReport, WriterReport
from sparklog.ui.report.scales import bin_edges

BINS: Final = 72


class _WriterSums(TypedDict):
    """The sums of a writer's commits; times are in ms."""

    writer: str | None
    offset_count_distinct: int
    records_sum: int
    batch_min: int | None
    batch_max: int | None
    time_min: int
    time_max: int
    topic_distinct: list[str | None]
    query_distinct: list[str | None]


def commits_report(table: pa.Table) -> CommitsReport:
    """Summarize `Log.commits()` by writer and time. Cost: one pass in Arrow, a row per writer."""
    # Commits to sparklog's own topics, such as the ledger, are not data of users.
    internal = pc.is_in(table.column("topic"), pa.array(sorted(INTERNAL)))
    table = table.filter(pc.invert(internal))
    if not table.num_rows:
        return CommitsReport()
    times = table.column("time").cast(pa.timestamp("ms")).cast(pa.int64())
    low, high = pc.min(times).as_py(), pc.max(times).as_py()
    edges = np.array(bin_edges(low, high, BINS))
    count = len(edges) - 1
    bins = np.clip(np.searchsorted(edges, times.to_numpy(), side="right") - 1, 0, count - 1)
    records = pc.fill_null(pc.subtract(table.column("end"), table.column("first")), 0)
    rows = table.append_column("records", records).append_column("bin", pa.array(bins, pa.int32()))
    rows = rows.set_column(rows.schema.get_field_index("time"), "time", times)
    is_reset = pc.equal(rows.column("kind"), "reset")
    written, resets = rows.filter(pc.invert(is_reset)), rows.filter(is_reset)
    again = {
        row["writer"]: row["offset_count_distinct"]
        for row in resets.group_by("writer").aggregate([("offset", "count_distinct")]).to_pylist()
    }
    series: dict[str | None, list[int]] = {}
    for row in written.group_by(["writer", "bin"]).aggregate([("records", "sum")]).to_pylist():
        series.setdefault(row["writer"], [0] * count)[row["bin"]] = row["records_sum"]
    found = _by_writer(written)
    writers = [_writer(row, series[row["writer"]], again) for row in found]
    writers.sort(key=lambda w: -w.records)
    return CommitsReport(edges_ms=tuple(int(edge) for edge in edges), writers=tuple(writers))


def _by_writer(rows: pa.Table) -> list[_WriterSums]:
    sums = rows.group_by("writer").aggregate(
        [
            ("offset", "count_distinct"),
            ("records", "sum"),
            ("batch", "min"),
            ("batch", "max"),
            ("time", "min"),
            ("time", "max"),
            ("topic", "distinct"),
            ("query", "distinct"),
        ]
    )
    found: list[_WriterSums] = sums.to_pylist()
    return found


def _writer(row: _WriterSums, by_time: list[int], again: dict[str | None, int]) -> WriterReport:
    return WriterReport(
        writer=row["writer"],
        query=next(iter(row["query_distinct"]), None),
        commits=row["offset_count_distinct"],
        records=row["records_sum"],
        resets=again.get(row["writer"], 0),
        first_batch=row["batch_min"],
        last_batch=row["batch_max"],
        first_ms=row["time_min"],
        last_ms=row["time_max"],
        topics=tuple(sorted(topic for topic in row["topic_distinct"] if topic is not None)),
        by_time=tuple(by_time),
    )


def readers_report(table: pa.Table) -> tuple[ReaderReport, ...]:
    """Convert `Log.readers()`, a row per group and partition, sorted by descending lag."""
    wanted = ("group", "kind", "query", "topic", "partition", "offset", "lag", "expired")
    times = table.column("time").cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()
    rows = [
        ReaderReport(time_ms=time, **{name: row[name] for name in wanted})
        for row, time in zip(table.select(wanted).to_pylist(), times, strict=True)
    ]
    return tuple(sorted(rows, key=lambda r: (-(r.lag or 0), r.group, r.topic or "")))
