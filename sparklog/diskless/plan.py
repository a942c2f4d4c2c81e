"""Read plans: the extents that a Spark task needs for its range of offsets.

With a plan a task requests only the bytes of its records: no state, no entry, no listing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sparklog.common import TopicPartition
from sparklog.diskless.entries import Epochs
from sparklog.diskless.extent_objects import ExtentObjects, Keys
from sparklog.diskless.extents import Extents
from sparklog.diskless.process_lock import ProcessLock
from sparklog.diskless.segments import DisklessSegments, PartitionState
from sparklog.diskless.state import DisklessState
from sparklog.format.names import TXNINDEX
from sparklog.storage.segments import (
    IndexKind,
    PartitionSegments,
    SegmentLog,
    StaleReadError,
)
from sparklog.storage.view import CachedPartition, Offsets, TopicInfo, View

T = TypeVar("T")


class WholeView(View, Protocol):
    """The view of the complete log, with the attributes that a plan needs."""

    objects: ExtentObjects

    @property
    def state(self) -> DisklessState:
        """The known state of the log. The first access opens the log."""


@dataclass(frozen=True, slots=True)
class DisklessPlan:
    """The extents of a range of offsets of a partition: a `sparklog.storage.view.ReadPlan`.

    The plan contains no secrets: data keys are wrapped, and a task gets the store's options
    separately.

    Attributes:
        log_id: The id of the log.
        key: The topic and partition.
        topic_id: The id of the topic.
        span: The log start offset and the log end offset at planning time.
        extents: The extents that contain the range.
        epochs: The partition's leader epochs.
        keys: The wrapped data keys of encrypted objects.
        gaps: Whether offsets may be missing because of compaction.
        producers: Whether batches may have a producer id.
    """

    log_id: str
    key: TopicPartition
    topic_id: str
    span: Offsets
    extents: Extents
    epochs: Epochs
    keys: Keys
    gaps: bool
    producers: bool

    def open(self, whole: View) -> "PlannedView":
        """Return a view that requests only the bytes of the range.

        `whole` is the log's own `DisklessView`, which is used only if the plan is outdated.
        """
        return PlannedView(self, whole)  # type: ignore[arg-type]


class PlannedView(View):
    """A task's view of a log. It answers from the read plan until the plan is outdated.

    From then on the view of the complete log answers (see `refresh`).
    """

    def __init__(self, plan: DisklessPlan, whole: WholeView) -> None:
        self._plan, self._whole = plan, whole
        self._lock = ProcessLock()
        self._fresh = True
        self._before = 0  # the incarnation of the complete view at its first use
        self.poll_ms = whole.poll_ms
        where = f"{whole.home}/{plan.key.topic}-{plan.key.partition}-{plan.topic_id}"
        self._kept = CachedPartition(_PlannedSegments(plan, where, whole.objects))

    @property
    def home(self) -> str:
        """The URL of the log."""
        return self._whole.home

    def renew(self) -> int:
        """Return the `incarnation`, which changes if the log is replaced; 0 for the planned log."""
        if not self._fresh:
            self.incarnation = self._whole.renew() - self._before
        return self.incarnation

    def refresh(self) -> None:
        """Use the log itself from now on, because the planned extents may have been replaced."""
        self._whole.refresh()
        with self._lock:
            if self._fresh:
                is_another = self._whole.state.log_id != self._plan.log_id
                self._before = self._whole.incarnation - int(is_another)
                self._fresh = False
        self.renew()

    def forget(self) -> None:
        """Clear the listing of the complete log's view. The plan stays in use until `refresh`."""
        self._whole.forget()

    def _current(self) -> View:
        if self._fresh:
            self.refresh()
        return self._whole

    def topics(self) -> dict[str, TopicInfo]:
        """Return the log's topics."""
        return self._current().topics()

    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions."""
        return self._current().partitions(topic)

    def topic_id(self, topic: str, partition: int) -> str | None:
        """Return the planned topic id for the planned partition."""
        if self._fresh and (topic, partition) == self._plan.key:
            return self._plan.topic_id
        return self._current().topic_id(topic, partition)

    def bases(self, topic: str) -> Mapping[int, int]:
        """Return the first offsets of partitions that an earlier topic of this name also had."""
        return self._current().bases(topic)

    def spans(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Offsets]:
        """Return {partition: (log start offset, end)}: of the planned partition as planned."""
        if self._fresh and list(keys) == [self._plan.key]:
            return {self._plan.key: self._plan.span}
        return self._current().spans(keys)

    def of_partition(
        self,
        topic: str,
        partition: int,
        make: Callable[[PartitionSegments], T],
        topic_id: str | None = None,
    ) -> T:
        """Return `make`'s result for the planned extents, or for the partition's segments."""
        mine = (topic, partition) == self._plan.key and topic_id in (None, self._plan.topic_id)
        if self._fresh and mine:
            return self._kept.cached(make)
        return self._current().of_partition(topic, partition, make, topic_id)

    def set_following(self) -> None:
        """Wait for an unavailable store as long as a reader of new records does."""
        self._whole.set_following()


class _PlannedSegments(DisklessSegments):
    """The planned extents, followed by an empty segment at the end of the range."""

    def __init__(self, plan: DisklessPlan, where: str, objects: ExtentObjects) -> None:
        state = PartitionState(
            plan.topic_id, plan.extents, plan.extents[-1].end, plan.epochs, plan.keys, plan.gaps,
            plan.producers,
        )  # fmt: skip
        self._planned = state
        super().__init__(where, plan.key, plan.log_id, objects, lambda: state, eager=True)

    def bases(self) -> list[int]:
        """Return the planned base offsets, and the end."""
        return [*super().bases(), self._planned.end]

    def log(self, base: int) -> SegmentLog:
        """Open a planned extent.

        Raises:
            StaleReadError: The offset is after the planned extents.
        """
        if base == self._planned.end:
            raise StaleReadError(f"{self.where}: the read plan has no offsets from {base} on")
        return super().log(base)

    def _index(self, base: int, kind: IndexKind) -> bytes | None:
        if kind == TXNINDEX and self._planned.producers:
            # Markers after the range decide about transactions too, and are not in the plan.
            raise StaleReadError(
                f"{self.where}: this task has no transaction index; the range is read again "
                "through the log"
            )
        return super()._index(base, kind)

    def producer_snapshot(self, offset: int) -> bytes:
        """Return the producer snapshot.

        Raises:
            StaleReadError: The snapshot can only be computed from the entire log.
        """
        if self._planned.producers:
            raise StaleReadError(
                f"{self.where}: this task has no producer snapshot; the range is read again "
                "through the log"
            )
        return super().producer_snapshot(offset)
