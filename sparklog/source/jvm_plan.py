"""The plan with which the JVM reads a task's records: segment files, offsets, offsets to skip.

JSON, a document per task, version `PLAN_VERSION`:

    {"version": 1,
     "standing": [[path, device, inode]],   identifies the planned log
     "pieces": [{"topic", "partition", "start", "end",
                 "python": why}             read by Python; otherwise
                {..., "directory",          of the segments BASE.log
                 "topicId": null            expected in partition.metadata; null: not checked
                 "gaps": false,             offsets may be missing: a compacted log
                 "segments": [base],        segments that may contain [start, end)
                 "next": null,              the segment behind them
                 "without": [[first, end]], offsets to leave out
                 "aborted": [[producer id, first offset, marker's offset]]}]}

The JVM takes no decisions. If a file is missing, a batch is incomplete or starts at an unexpected
offset, or a topic id or inode differs, it hands over to Python at the offset that it reached.
Errors, retries and failOnDataLoss are thus implemented in Python only. The JVM finds an offset in a
segment by the index, as a hint, as Python does.

A partition's value for Spark is `(plan, task)`, both bytes, or `(plan, task, piece, at)` after a
handover: Python reads that piece from offset `at`, and the following pieces that are not for the
JVM.
"""

import json
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final, TypeAlias

from sparklog.common import TopicPartition
from sparklog.errors import SparklogError
from sparklog.fs import LOCAL, FileSystem
from sparklog.jvm.plans import PLAN_VERSION
from sparklog.log.aborted_transactions import AbortedTxn, TransactionIndexes
from sparklog.log.offset_lookup import Lookup
from sparklog.log.read_retry import replaced
from sparklog.source.input_partitions import FirstTask, PlannedRange
from sparklog.source.options import SourceOptions
from sparklog.storage.offset_ranges import clipped
from sparklog.storage.segments import LocalFiles
from sparklog.storage.view import View

Pieces: TypeAlias = tuple[PlannedRange, ...]
Task: TypeAlias = Pieces | FirstTask
Json: TypeAlias = dict[str, Any]
_UNREADABLE: Final = json.dumps({"version": PLAN_VERSION}).encode()


def values(view: View, tasks: Iterable[Task], options: SourceOptions) -> list[Any]:
    """Return the value of `InputPartition` for each task, with a plan if the JVM requested plans.

    Cost: `View.local_files` once per partition; for read_committed, a `.txnindex` lookup in each
        segment from a range's start on.
    """
    versions = options.caller.plan_versions
    if not (options.jvm and versions):
        return list(tasks)
    if str(PLAN_VERSION) not in versions:  # the JVM then reports the unsupported version
        return [(_UNREADABLE, pickle.dumps(task)) for task in tasks]
    look = _Look(view, is_committed=options.isolation_level == "read_committed")
    return [look.value(task) for task in tasks]


def task_of(value: Any, fs: FileSystem = LOCAL) -> Task:
    """Return the part of a partition's value that Python reads: the entire task, or the JVM's rest.

    Spark passes None when there are no records to read, which is an empty task.

    Raises:
        LogReplacedError: The JVM has read from another log than the present log.
    """
    if not (isinstance(value, tuple) and value and isinstance(value[0], bytes)):
        return value or ()
    raw_plan, raw, *resumed = value
    task: Task = pickle.loads(raw)  # noqa: S301 - ours, out of what Spark has unpickled
    if not resumed:
        return task
    piece, at = resumed
    plan, pieces = json.loads(raw_plan), pieces_of(task)
    if piece or at > pieces[0].start:
        _check_standing(plan["standing"], fs)
    kinds = plan["pieces"]
    behind = takewhile(lambda each: "python" in kinds[each], range(piece + 1, len(pieces)))
    return (_part(pieces[piece], at, pieces[piece].end), *(pieces[each] for each in behind))


def _check_standing(standing: list[tuple[str, int, int]], fs: FileSystem) -> None:
    """Raise LogReplacedError if the log is not the planned log and records were already returned.

    Hosts that share a file system agree on inodes, but not on devices.
    """
    for path, _, inode in standing:
        try:
            is_same = fs.identity(path)[1] == inode
        except FileNotFoundError:
            is_same = False
        if not is_same:
            raise replaced(path)


def pieces_of(task: Task) -> Pieces:
    """Return the offset ranges that a task reads."""
    return task.pieces if isinstance(task, FirstTask) else task


class _Look:
    """Looks up a log's files once for all tasks of a plan."""

    def __init__(self, view: View, *, is_committed: bool) -> None:
        self._view, self._is_committed = view, is_committed
        self._found: dict[TopicPartition, LocalFiles | str] = {}
        self._indexes: dict[TopicPartition, TransactionIndexes] = {}

    def value(self, task: Task) -> tuple[bytes, bytes]:
        if isinstance(task, FirstTask):
            cut = [(piece, _python(piece, "its task registers the query")) for piece in task.pieces]
            return self._encoded(cut), pickle.dumps(task)
        cut = [pair for piece in task for pair in self._cut(piece)]
        return self._encoded(cut), pickle.dumps(tuple(piece for piece, _ in cut))

    def _encoded(self, cut: list[tuple[PlannedRange, Json]]) -> bytes:
        found = (self._found.get(piece.topic_partition) for piece, _ in cut)
        standing = next((files.identities for files in found if isinstance(files, LocalFiles)), ())
        plan = {
            "version": PLAN_VERSION,
            "standing": [[each.path, each.device, each.inode] for each in standing],
            "pieces": [json for _, json in cut],
        }
        return json.dumps(plan, separators=(",", ":")).encode()

    def _cut(self, piece: PlannedRange) -> Iterator[tuple[PlannedRange, Json]]:
        """Yield the parts of a range, each for the JVM or for Python."""
        files = self._files(piece)
        if isinstance(files, str):
            yield piece, _python(piece, files)
            return
        first = files.bases[0]
        if piece.start < first:
            older = _part(piece, piece.start, min(first, piece.end))
            yield older, _python(older, "its segments are not in local files")
        if first < piece.end:
            rest = piece if first <= piece.start else _part(piece, first, piece.end)
            yield rest, self._jvm(rest, files)

    def _files(self, piece: PlannedRange) -> LocalFiles | str:
        """Return the local files of a range's partition, or why the JVM can't read the range."""
        if piece.plan is not None:
            return "its records are in a store"
        key = piece.topic_partition
        if key not in self._found:
            try:
                files = self._view.local_files(key)
            except SparklogError as error:
                self._found[key] = str(error)  # Python reports the error when it reads
            else:
                self._found[key] = files or "its records are not in local files"
        return self._found[key]

    def _jvm(self, piece: PlannedRange, files: LocalFiles) -> Json:
        # Python looks up the aborted transactions at planning time, so that the JVM has to
        # understand no transaction index.
        aborted: list[AbortedTxn] = []
        if self._is_committed:
            try:
                aborted = self._aborted(piece)
            except (SparklogError, FileNotFoundError) as error:
                return _python(piece, str(error))
        return _offsets(piece) | {
            "directory": files.directory,
            "topicId": piece.topic_id,
            "gaps": files.gaps,
            "segments": files.holding(piece.start, piece.end),
            "next": files.following(piece.end),
            "without": clipped(piece.without, piece.start, piece.end),
            "aborted": aborted,
        }

    def _aborted(self, piece: PlannedRange) -> list[AbortedTxn]:
        key = piece.topic_partition
        indexes = self._indexes.get(key)
        if indexes is None:
            lookup = self._view.of_partition(*key, Lookup)
            lookup.refresh()
            indexes = self._indexes[key] = TransactionIndexes(lookup)
        return indexes.aborted(piece.start, piece.end)


def _offsets(piece: PlannedRange) -> Json:
    return {
        "topic": piece.topic, "partition": piece.partition, "start": piece.start, "end": piece.end,
    }  # fmt: skip


def _python(piece: PlannedRange, why: str) -> Json:
    return _offsets(piece) | {"python": why}


def _part(piece: PlannedRange, start: int, end: int) -> PlannedRange:
    return replace(piece, start=start, end=end)
