"""The service's counts of its own rounds, from the reports of the rounds."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sparklog.clock import monotonic_ms
from sparklog.common import TopicPartition
from sparklog.metrics import meters
from sparklog.service.metrics import names
from sparklog.service.metrics.observed import LogMetrics
from sparklog.storage.round_report import Cleanable, CleanReport, Deleted, Report

_COUNTED: Final = (
    "errors", "locked_ms", "deleted", "cleaned", "uploaded", "removed", "merged", "swept",
)  # fmt: skip


class WorkMeters:
    """The counters and gauges of a service. `directories` has the log dirs of the log."""

    def __init__(self, directories: Sequence[str]) -> None:
        self._all, self._directories = meters(directories[0]), directories
        self._cleaned_ms: int | None = None  # the cleaner's last look, or its start

    def started(self, works: Iterable[str], now_ms: int) -> None:
        """Show zeros from the start, so that alerts can tell an idle from a missing service."""
        for work in works:
            self._all.counter(names.ROUNDS).add(0, work)
            self._all.counter(names.ROUND_ERRORS).add(0, work)
            self._all.gauge(names.DEAD_THREADS).set(0, work)
            if work == "clean":
                self._cleaned_ms = now_ms
                self._all.gauge(names.DEAD_CLEANERS).set(0)

    def refresh(self, *, now_ms: int, leading: bool, dead: Mapping[str, bool]) -> None:
        """Set the gauges that are computed at each scrape.

        `dead` has, for each kind of work, whether the thread of the work died.
        """
        self._all.gauge(names.LEADING).set(int(leading))
        for work, is_dead in dead.items():
            self._all.gauge(names.DEAD_THREADS).set(int(is_dead), work)
            if work == "clean":
                self._all.gauge(names.DEAD_CLEANERS).set(int(is_dead))
        if not leading:
            self._all.gauge(names.PROBE_FAILED).clear()
        if leading and self._cleaned_ms is not None:
            self._all.gauge(names.SINCE_CLEAN).set(max(0, now_ms - self._cleaned_ms))
        else:
            self._all.gauge(names.SINCE_CLEAN).clear()  # another service cleans
            self._cleaned_ms = now_ms if self._cleaned_ms is not None else None

    def record_probe(self, directory: str, *, failed: bool) -> None:
        """Record the result of a trial write to a log dir."""
        self._all.gauge(names.PROBE_FAILED).set(int(failed), directory)

    def uncleanable(self, given_up: Iterable[TopicPartition], found: LogMetrics) -> None:
        """Set the number and bytes of uncleanable partitions, by log dir."""
        counts, sizes = (dict.fromkeys(self._directories, 0) for _ in range(2))
        wanted = set(given_up)
        for one in found.partitions if wanted else ():
            if (one.topic, one.partition) in wanted:
                home = os.path.dirname(one.directory)
                counts[home] += 1
                sizes[home] += one.size_bytes
        for directory in counts if self._cleaned_ms is not None else ():
            self._all.gauge(names.UNCLEANABLE).set(counts[directory], directory)
            self._all.gauge(names.UNCLEANABLE_BYTES).set(sizes[directory], directory)

    def failed(self, work: str) -> None:
        """Count an error that prevented the start of a round."""
        self._all.counter(names.ROUND_ERRORS).add(1, work)

    @contextlib.contextmanager
    def round(self, work: str, report: Report) -> Iterator[None]:
        """Time a kind of work, and count its additions to the report, also after an error."""
        if report.dry_run:
            yield
            return
        before = {name: len(getattr(report, name)) for name in _COUNTED}
        began, ended, made = monotonic_ms(), False, report.made_manifests
        try:
            yield
            ended = True
        finally:
            news = {name: getattr(report, name)[at:] for name, at in before.items()}
            errors = len(news["errors"]) + (not ended)
            self._all.counter(names.ROUNDS).add(1, work)
            self._all.histogram(names.ROUND_SECONDS).observe((monotonic_ms() - began) / 1000, work)
            self._all.counter(names.ROUND_ERRORS).add(errors, work)
            self._all.gauge(names.LAST_ROUND).set(report.time_ms / 1000, work)
            if not errors:
                self._all.gauge(names.LAST_SUCCESS).set(report.time_ms / 1000, work)
            for gone in news["swept"]:
                self._all.counter(names.SWEPT_OBJECTS).add(gone.objects, gone.kind)
                self._all.counter(names.SWEPT_BYTES).add(gone.bytes, gone.kind)
            self._all.counter(names.MANIFESTS_MADE).add(report.made_manifests - made)
            for locked_ms in news["locked_ms"]:
                self._all.histogram(names.LOCKED).observe(locked_ms / 1000)
            if work == "retain":
                self._deleted(news["deleted"])
            elif work == "clean":
                self._cleaned_ms = report.time_ms
                self._cleaned(news["cleaned"])
            elif work == "merge":
                for one in news["merged"]:
                    self._all.counter(names.MERGED_BYTES).add(one.bytes, one.topic)
            elif work == "tier":
                self._tiered(news, failed=bool(errors))

    def _deleted(self, deleted: Sequence[Deleted]) -> None:
        for one in deleted:
            for segment in one.segments:
                self._all.counter(names.DELETED_SEGMENTS).add(1, segment.rule)
                self._all.counter(names.DELETED_BYTES).add(segment.bytes, segment.rule)
        self._all.gauge(names.HELD_BACK).set(sum(one.held_back_bytes for one in deleted))

    def _cleaned(self, cleaned: Sequence[CleanReport]) -> None:
        if not cleaned:
            return
        read = sum(one.bytes_before for one in cleaned)
        written = sum(one.bytes_after for one in cleaned)
        self._all.counter(names.CLEANED_READ).add(read)
        self._all.counter(names.CLEANED_WRITTEN).add(written)
        self._all.gauge(names.BUFFER_USED).set(100 * max(one.utilization for one in cleaned))
        self._all.gauge(names.RECOPY).set(100 * written / read if read else 0)
        self._all.gauge(names.CLEAN_SECONDS).set(max(one.took_ms for one in cleaned) / 1000)

    def record_dirty(self, compacted: Sequence[Cleanable]) -> None:
        """Record how dirty the compacted partitions are."""
        ratio = max((one.dirt.ratio for one in compacted), default=0.0)
        overdue_ms = max((one.dirt.overdue_ms for one in compacted), default=0)
        self._all.gauge(names.MAX_DIRTY).set(100 * ratio)
        self._all.gauge(names.COMPACTION_DELAY).set(overdue_ms / 1000)

    def _tiered(self, news: Mapping[str, list[Any]], *, failed: bool) -> None:
        for up in news["uploaded"]:
            self._all.counter(names.COPY_REQUESTS).add(1, up.topic)
            self._all.counter(names.COPY_BYTES).add(up.bytes, up.topic)
        for gone in news["removed"]:
            self._all.counter(names.DELETE_REQUESTS).add(1, gone.topic)
        self._all.counter(names.REMOTE_ERRORS).add(int(failed))
