"""Exports a range of a topic to another log, with the same offsets."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sparklog.clock import monotonic_ms
from sparklog.errors import InvalidRequestError
from sparklog.log.log import Log, view_of
from sparklog.log.partition_reader import reader_of
from sparklog.log.raw_batches import stream_batches
from sparklog.log.read_retry import PartitionRead
from sparklog.logdir.paths import split_path
from sparklog.opening import open_log, same_place, url_of
from sparklog.progress import Progress, shows_progress
from sparklog.storage.staging import Framing
from sparklog.tools.moving import preserved_offsets
from sparklog.tools.moving.batch_copy import BatchCopy, Copied
from sparklog.tools.moving.exporting import Exported, Meter, Offsets, TopicRange
from sparklog.tools.moving.preserved_offsets import Run, commit_copied, commit_runs, copied_ends

_NOT_KEPT: Final = ("remote.", "local.")


@shows_progress("exporting")
def export_log(
    records: TopicRange,
    to: str | os.PathLike[str],
    *,
    framing: Framing | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Copy the records of a range to the log at `to`; a repeated call copies new records.

    A missing log is created; its topic starts at `start` of the first export. After the log is
    closed, a broker loads each partition directory of a log dir.

    Batches are copied unchanged, with codec, producers, sequences and times; batches across an end
    of the range are cut. read_committed leaves the records of aborted transactions out, and ends
    before an open transaction. read_uncommitted copies all, and an open transaction stays open
    until the next export. A copy in a store has no transactions: their records are like any others.
    Leader epochs are the copy's own.

    Args:
        records: The range.
        to: A log dir, or the URL of a log in a store.
        framing: Decode and encode every record again in this way.
        storage_options: Options of fsspec for the store.
        progress: Called with the number of offsets done, and the total.

    Also raises the errors of `Log.read` and `Log.append`.

    Raises:
        InvalidRequestError: `to` contains a topic of this name that is not a copy of this topic.
        OffsetOutOfRangeError: Records since the last export were deleted from the log.

    Cost:
        A pass over the batches' headers and CRCs. Memory: COMMIT_BYTES and a few MiB.
    """
    began, log, topic = monotonic_ms(), records.log, records.topic
    done = Exported(topic=topic, to=os.fspath(to))
    ours = split_path(log.path)
    if any(same_place(one, other) for one in split_path(to) for other in ours):
        raise InvalidRequestError(f"{to} is the log itself: choose another place")
    info = log.topic(topic)
    first, last = records.offsets()
    # The retention of the source, even if that is Kafka's default.
    config = {"retention.ms": str(info.config.retention_ms)}
    config |= {k: v for k, v in info.config.to_dict().items() if not k.startswith(_NOT_KEPT)}
    writer = f"export/{info.id}/{topic}"
    with open_log(to, mode="rw", storage_options=storage_options) as target:
        if topic not in target.topics():
            target.create_topic(topic, len(first), config, starts=first)
        ends = copied_ends(target, topic, writer, f"topic {topic} in {log.path}")
        at = records.resume(first, last, ends, done.to)
        if len(first) > len(ends):
            target.alter_topic(topic, partitions=len(first))
            ends = {p: end for p, (_, end) in target.offsets(topic).items()}
        meter = Meter(at, last, progress)
        to_do = _Copy(records, target, ends, writer, done, meter)
        for p in at:
            if framing is None:
                to_do.copy(p, (at[p], last[p]), transactions=url_of(to, mode="rw") is None)
            else:
                to_do.encode(p, (at[p], last[p]), framing)
    done.took_ms = int(monotonic_ms() - began)
    return done


@dataclass(frozen=True, slots=True)
class _Copy:
    """Copies partitions of a topic in sequence, commit after commit.

    `ends` has the end offset of each partition in the copy.
    """

    records: TopicRange
    target: Log
    ends: Offsets
    writer: str
    done: Exported
    meter: Meter

    def copy(self, p: int, span: tuple[int, int], *, transactions: bool) -> None:
        """Copy the batches of [start, end) unchanged."""
        at, end = self.ends[p], span[1]
        if at >= end:
            return
        log, topic = self.records.log, self.records.topic
        config = self.target.topic(topic).config
        batches = BatchCopy(at, span[0], end, config, transactions=transactions)
        view, isolation = view_of(log), self.records.isolation
        path = reader_of(view, topic, p).where
        for raw in stream_batches(PartitionRead(view, topic, p, *span, isolation=isolation)):
            batches.add(raw, path)
            if batches.nbytes >= preserved_offsets.COMMIT_BYTES:
                self._commit(p, span, batches.take())
        last = batches.take(end)
        if last.start < end:
            self._commit(p, span, last)

    def _commit(self, p: int, span: tuple[int, int], copied: Copied) -> None:
        commit_copied(self.target, self.records.topic, p, copied, writer=self.writer)
        self._note(p, span, copied.start, copied.end, copied.records)

    def encode(self, p: int, span: tuple[int, int], framing: Framing) -> None:
        """Copy the records of [start, end) in new batches."""
        at, end = self.ends[p], span[1]
        run = Run(at, at)

        def commit(upto: int) -> Run:
            run.end = upto
            topic = self.records.topic
            commit_runs(self.target, topic, {p: run}, writer=self.writer, framing=framing)
            records = sum(rows.num_rows for rows in run.rows)
            self._note(p, span, run.start, upto, records)
            return Run(upto, upto)

        for rows in self.records.read(p, *span):
            run.rows.append(rows)
            if run.nbytes >= preserved_offsets.COMMIT_BYTES:
                run = commit(rows.column("offset")[rows.num_rows - 1].as_py() + 1)
        if run.start < end:
            commit(end)

    def _note(self, p: int, span: tuple[int, int], start: int, end: int, records: int) -> None:
        self.done.records += records
        self.done.offsets[p] = (span[0], end)
        self.meter.add(end - max(start, span[0]))
