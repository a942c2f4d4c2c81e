"""The batches of a checkpoint: plans, commits and state, and whether a query can go back to them.

Spark continues after batch N if it finds `offsets/N`, `offsets/N-1`, `commits/N`, version N + 1 of
every state store, and for file sources their own log up to N's offset. With asynchronous progress
tracking most batches have neither plan nor commit, and the plan before N is the previous existing
plan; such queries have no state. Source: MicroBatchExecution.populateStartOffsets,
AsyncProgressTrackingMicroBatchExecution (4.2).

The log of a file source, `sources/<i>/`, has the files that each of its own batches found:

    <n>             a line `v1`, then {"path": ..., "timestamp": ..., "batchId": n} for each file
    <n>.compact     the same for all batches up to n; every 10th file

An offset {"logOffset": n} is the newest entry that a query's batch has read. A truncation must
remove later entries: Spark would consider their files as seen, and read them all at once. Source:
FileStreamSource, CompactibleFileStreamLog (Spark 4.2).
"""

import bisect
import re
from functools import cached_property
from typing import Final

from sparklog.checkpoint.files import Checkpoint, batch_numbers
from sparklog.checkpoint.spark_files.metadata_logs import (
    BatchOffsets,
    Commit,
    log_offset_of,
    parse_commit,
    parse_offsets,
)
from sparklog.checkpoint.spark_files.state_schema import has_all_in_one
from sparklog.checkpoint.spark_files.state_stores import (
    StateStore,
    StateStoreMetadata,
    VersionFiles,
    metadata_path,
    operators_of,
    read_metadata,
    stores_of,
)
from sparklog.errors import DataCorruptionError, InvalidRequestError

_SHUFFLE: Final = "spark.sql.shuffle.partitions"
PARTITIONS: Final = (
    "spark.sql.streaming.internal.stateStore.partitions",
    _SHUFFLE,
)  # keys in the plan's conf; the first has priority
_SOURCE_ENTRY: Final = re.compile(r"([0-9]+)(\.compact)?")


class Batches:
    """The batches of a checkpoint. Reads each file once. Not thread-safe."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.planned = batch_numbers(checkpoint.names("offsets"))
        self.committed = batch_numbers(checkpoint.names("commits"))
        self._offsets: dict[int, BatchOffsets] = {}
        self._commits: dict[int, Commit] = {}
        self._metadata: dict[str, list[StateStoreMetadata]] = {}
        self._in_one: dict[int, bool] = {}

    @cached_property
    def stores(self) -> list[StateStore]:
        """The state stores."""
        return stores_of(self.checkpoint)

    @cached_property
    def operators(self) -> list[int]:
        """The stateful operators."""
        return operators_of(self.checkpoint)

    def offsets(self, batch: int) -> BatchOffsets:
        """Return the plan of a batch: the contents of `offsets/<batch>` in the checkpoint.

        Raises:
            FileNotFoundError: The batch has no plan.
            DataCorruptionError: The plan is damaged.
        """
        if batch not in self._offsets:
            data, where = self._read(f"offsets/{batch}")
            self._offsets[batch] = parse_offsets(data, batch=batch, path=where)
        return self._offsets[batch]

    def commit(self, batch: int) -> Commit:
        """Return the commit of a batch.

        Raises:
            FileNotFoundError: The batch has no commit.
            DataCorruptionError: The commit is damaged.
        """
        if batch not in self._commits:
            data, where = self._read(f"commits/{batch}")
            self._commits[batch] = parse_commit(data, batch=batch, path=where)
        return self._commits[batch]

    def _read(self, path: str) -> tuple[bytes, str]:
        """Return the content of a file, and the path of the file or segment for errors."""
        where, _ = self.checkpoint.locate(path)
        return self.checkpoint.read(path), where

    def obstacle(self, batch: int) -> str | None:
        """Return why a fork or reset can't go back to a batch, or None."""
        for name in ("commits", "offsets"):
            if not self.checkpoint.exists(f"{name}/{batch}"):
                return (
                    f"{name}/{batch} is missing"
                    if batch < self.last
                    else "the batch is not committed"
                )
        if batch and self.previous_plan(batch) is None:
            return f"offsets/{batch - 1} is missing, which Spark also needs"
        try:
            for needed in self.version_files(batch).values():
                if needed.missing is not None:
                    return needed.missing
            for name, text in self.offsets(batch).sources.items():
                log_offset = log_offset_of(text)
                if log_offset is not None:
                    missing = missing_entries(self.checkpoint, name, log_offset)
                    if missing is not None:
                        return missing
        except (DataCorruptionError, FileNotFoundError) as error:
            return str(error)
        return None

    def version_files(self, batch: int) -> dict[tuple[int, int, str], VersionFiles]:
        """Return {(operator, partition, store): files that contain the state after a batch}.

        Raises:
            FileNotFoundError: The commit is missing, or an operator has no metadata.
            DataCorruptionError: The commit or an operator's metadata are damaged.
        """
        found: dict[tuple[int, int, str], VersionFiles] = {}
        for store in self.stores:
            if store.partition >= (self.partitions(store.operator, batch) or store.partition + 1):
                continue  # from before a repartition
            parts = self._ids(store.operator, batch)
            known = None
            if parts is not None:
                known = parts[store.partition] if store.partition < len(parts) else []
            needed = store.files_of(self.checkpoint, batch + 1, known)
            found[store.operator, store.partition, store.name] = needed
        # A partition whose files are all missing is no store in `self.stores`. Only the metadata of
        # its operator shows that state is lost.
        for operator in self.operators:
            for info in self._wanted(operator, batch):
                for part in range(self.partitions(operator, batch) or info.partitions):
                    name = info.name
                    lost = f"there is no state of operator {operator}, partition {part}, {name}"
                    found.setdefault((operator, part, name), VersionFiles([], lost))
        return found

    def _wanted(self, operator: int, batch: int) -> list[StateStoreMetadata]:
        """Return the stores in an operator's metadata, with their numbers of partitions."""
        path = metadata_path(self.checkpoint, operator, batch)
        if path is None:
            return []
        if path not in self._metadata:
            self._metadata[path] = read_metadata(self.checkpoint, path)
        return self._metadata[path]

    def partitions(self, operator: int, batch: int) -> int | None:
        """Return the number of partitions of an operator's stores at a batch, if it is known.

        The number is taken from the batch itself: from the ids in the commit, or the conf in the
        plan. The operator's metadata are not sufficient. Spark's offline repartition updates them
        only if they have versions. If all rows are in a single partition, they contain the number
        of the conf nevertheless.

        Raises:
            FileNotFoundError: The plan or the commit is missing.
            DataCorruptionError: The plan or the commit is damaged.
        """
        ids = self._ids(operator, batch)
        if ids is not None:
            return len(ids)
        if operator not in self._in_one:
            self._in_one[operator] = has_all_in_one(self.checkpoint, operator)
        if self._in_one[operator]:
            return 1
        return _partitions_in_conf(self.offsets(batch))

    def partitions_in_plan(self, batch: int) -> int | None:
        """Return the number of state partitions in the conf of a plan, if it is there."""
        return _partitions_in_conf(self.offsets(batch))

    def _ids(self, operator: int, batch: int) -> list[list[str]] | None:
        ids = self.commit(batch).state_ids
        return None if ids is None else ids.get(operator)

    def previous_plan(self, batch: int) -> int | None:
        """Return the newest batch with a plan before `batch`, or None if the plan was removed."""
        if self.checkpoint.exists(f"offsets/{batch - 1}"):
            return batch - 1
        earlier = [b for b in self.planned if b < batch]
        return earlier[-1] if earlier and self.was_skipped(batch - 1) else None

    def was_skipped(self, batch: int) -> bool:
        """Return True if a batch has neither plan nor commit.

        This is normal with asynchronous progress tracking.
        """
        gone = not any(self.checkpoint.exists(f"{n}/{batch}") for n in ("offsets", "commits"))
        return gone and not self.operators

    def is_dropped(self, batch: int) -> bool:
        """Return True if Spark's offline repartition left out a batch that had no commit.

        The repartition writes a commit for such a batch, plans the previous batch again with
        another number of partitions, and the state continues from there. Raises the errors of
        `partitions`.
        """
        good = [b for b in self.committed if b in self.planned and self.obstacle(b) is None]
        place = bisect.bisect(good, batch)
        if not 0 < place < len(good):
            return False
        before, after = self.offsets(good[place - 1]), self.offsets(good[place])
        return before.sources == after.sources and _partitions_in_conf(
            before
        ) != _partitions_in_conf(after)

    def unfinished_repartition(self) -> bool:
        """Return True if Spark's offline repartition planned the newest batch and did not finish.

        The query then refuses to start (STREAMING_UNFINISHED_REPARTITION_DETECTED). Raises the
        errors of `offsets`. Source: OfflineStateRepartitionUtils.isRepartitionBatch (4.3).
        """
        newest = self.planned[-1] if self.planned else 0
        if newest in self.committed or newest - 1 not in self.planned:
            return False
        now, then = (self.offsets(b).conf.get(_SHUFFLE) for b in (newest, newest - 1))
        return None not in (now, then) and now != then

    def reachable(self) -> list[int]:
        """Return the batches that a query can go back to, ascending. Cost: checks every batch."""
        return [batch for batch in self.committed if self.obstacle(batch) is None]

    def check_reachable(self, batch: int) -> None:
        """Raise InvalidRequestError if a query can't go back to a batch.

        The message has the reason, and the first and last batch that it can go back to.
        """
        obstacle = self.obstacle(batch)
        if obstacle is None:
            return
        possible = self.reachable()
        hint = "it can't go back to any batch"
        if possible:
            hint = f"the earliest possible batch is {possible[0]}, the latest {possible[-1]}"
        path = self.checkpoint.path
        raise InvalidRequestError(
            f"the checkpoint {path} can't go back to batch {batch}: {obstacle}; {hint}. "
            f"`sparklog checkpoint verify {path}` reports all damage",
            path=path,
        )

    @property
    def last(self) -> int:
        """The newest batch that is planned or committed; -1 if there is none."""
        return max([*self.planned, *self.committed], default=-1)


def _partitions_in_conf(plan: BatchOffsets) -> int | None:
    """Return the number of state partitions in a plan's conf."""
    partitions = next((plan.conf[key] for key in PARTITIONS if key in plan.conf), "")
    return int(partitions) if partitions.isdecimal() and int(partitions) else None


def entries_of(checkpoint: Checkpoint, source: str) -> dict[int, str]:
    """Return {number of the entry: file name}."""
    names = checkpoint.names(f"sources/{source}")
    matches = {name: _SOURCE_ENTRY.fullmatch(name) for name in names}
    return {int(match[1]): name for name, match in matches.items() if match is not None}


def missing_entries(checkpoint: Checkpoint, source: str, log_offset: int) -> str | None:
    """Return why a file source can't go back to entry `log_offset` of its log, or None."""
    entries = entries_of(checkpoint, source)
    at = log_offset
    while at in entries:
        # A compact entry contains all entries before it, so older entries may be missing.
        if entries[at].endswith(".compact") or at == 0:
            return None
        at -= 1
    if log_offset < 0:
        return None
    return f"sources/{source}/{at} is missing, a part of the list of files that the source has read"


def entries_after(checkpoint: Checkpoint, source: str, log_offset: int) -> list[str]:
    """Return the paths of the entries that must be removed to go back to `log_offset`.

    The entries are the files `sources/<source>/<n>` of a file source's own log.
    """
    entries = entries_of(checkpoint, source)
    return [f"sources/{source}/{name}" for n, name in entries.items() if n > log_offset]
