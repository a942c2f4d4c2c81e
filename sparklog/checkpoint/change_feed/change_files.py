"""Finds the change files of a state store: a file per committed batch and partition."""

from dataclasses import dataclass
from typing import Final

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint, batch_numbers
from sparklog.checkpoint.spark_files.metadata_logs import parse_offsets
from sparklog.checkpoint.spark_files.state_schema import store_schema
from sparklog.checkpoint.spark_files.state_stores import (
    StateStore,
    StateVersion,
    stores_info,
    stores_of,
)
from sparklog.errors import InvalidRequestError

_ROW_CHECKSUMS: Final = "spark.sql.streaming.stateStore.rowChecksum.enabled"


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """The file with the changes of a batch in a partition of a store.

    Attributes:
        snapshots: Snapshots that may contain the names of the partition's column families, the
            likeliest first.
        row_checksums: Whether rows have a checksum before the value, or before the key of a deleted
            value (HDFS provider).
    """

    batch: int
    partition: int
    path: str
    is_rocksdb: bool
    snapshots: tuple[str, ...] = ()
    row_checksums: bool = False


class StoreChanges:
    """The available changes of a store. Reads the checkpoint again for each call."""

    def __init__(self, checkpoint: Checkpoint, operator: int, store: str) -> None:
        """Find the store.

        Raises:
            InvalidRequestError: See `changes`.
        """
        self._checkpoint = checkpoint
        self.schema = store_schema(checkpoint, operator, store)
        self.name = f"operator {operator}, store {store} of {checkpoint.path}"
        self._check_provider()

    def end(self) -> int:
        """Return the batch after the last committed batch. Cost: lists the commits."""
        committed = batch_numbers(self._checkpoint.list_names("commits"))
        return committed[-1] + 1 if committed else 0

    def available_batches(self) -> tuple[int, int]:
        """Return the batches [first, end) with existing changes."""
        end = self.end()
        return self.files(0, end)[0], end

    def planned_ms(self, batch: int) -> int | None:
        """Return when a batch was planned, if known.

        A batch that runs again has a later time. Cost: reads the plan.

        Raises:
            DataCorruptionError: The plan is damaged.
        """
        path = f"offsets/{batch}"
        try:
            if batch < 0 or not self._checkpoint.find(path):
                return None
            where, _ = self._checkpoint.locate(path)
            plan = parse_offsets(self._checkpoint.read(path), batch=batch, path=where)
        except FileNotFoundError:  # removed by Spark in the meantime
            return None
        return plan.timestamp_ms or None

    def first_recomputed(self, batch: int, planned_ms: int) -> int | None:
        """Return the first batch before `batch` that ran again since a reader read it, or None.

        Batches that ran again after a reset were planned later. If the clock was set back, the
        result is the first batch with existing changes.

        Args:
            batch: The batch that the reader would read next.
            planned_ms: When the batch right before `batch` was planned, according to the reader.
        """
        end = self.end()
        now_ms = self.planned_ms(batch - 1) if batch <= end else None
        if batch <= end and now_ms in (None, planned_ms):
            return None
        first = min(batch, end)
        while (self.planned_ms(first - 1) or 0) > planned_ms:
            first -= 1
        return first if first < batch else self.available_batches()[0]

    def files(self, start: int, end: int) -> tuple[int, list[ChangeFile]]:
        """Return (first, files): the change files of batches [first, end), by batch and partition.

        `first` is `start`, or the batch after the last batch with missing files. All batches below
        `end` must be committed.
        """
        self._checkpoint.refresh()  # after reading the commits, so that their state is seen
        batches = Batches(self._checkpoint)
        stores = {s.partition: s for s in batches.stores if self._is_ours(s)}
        found: list[list[ChangeFile]] = []
        for batch in range(end - 1, start - 1, -1):
            files = self._files_of(batches, stores, batch)
            if files is None:
                break
            found.append(files)
        return end - len(found), [file for files in reversed(found) for file in files]

    def _is_ours(self, store: StateStore) -> bool:
        return store.operator == self.schema.operator and store.name == self.schema.store

    def _check_provider(self) -> None:
        stores = [s for s in stores_of(self._checkpoint) if self._is_ours(s)]
        if stores and not any(s.changes for s in stores) and stores[0].provider == "rocksdb":
            raise InvalidRequestError(
                f"{self.name}: the RocksDB state store writes snapshots, but no changelogs. To "
                "read changes, set "
                "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled=true and "
                "restart the query; changes begin with the next batch"
            )

    def _files_of(
        self, batches: Batches, stores: dict[int, StateStore], batch: int
    ) -> list[ChangeFile] | None:
        """Return a batch's files, unless a file is missing."""
        schema = self.schema
        parts, count = None, None
        if batch in batches.committed:
            ids = batches.commit(batch).state_ids
            parts = None if ids is None else ids.get(schema.operator)
            if batch in batches.planned:
                count = batches.partitions(schema.operator, batch)
        infos = stores_info(self._checkpoint, schema.operator, batch)
        named = (info.partitions for info in infos if info.name == schema.store)
        wanted = set(range(count or next(named, 0) or schema.partitions))
        files: list[ChangeFile] = []
        for partition in sorted(wanted | stores.keys()):
            store = stores.get(partition)
            known: list[str | None] = [None]
            if parts is not None:
                known = [*parts[partition]] if partition < len(parts) else []
            versions = [StateVersion(batch + 1, each) for each in known]
            name = next(
                (store.changes[v] for v in versions if v in store.changes) if store else iter(()),
                None,
            )
            if store is not None and name is not None:
                files.append(self._file(batches, store, batch, name))
            elif partition in wanted:
                return None
        return files

    def _file(self, batches: Batches, store: StateStore, batch: int, name: str) -> ChangeFile:
        snapshots: tuple[str, ...] = ()
        if self.schema.has_families:
            # A new family makes Spark write a snapshot with the same version.
            ordered = sorted(
                store.snapshots, key=lambda v: (v.number > batch + 1, abs(v.number - batch))
            )
            snapshots = tuple(store.path(store.snapshots[v]) for v in ordered)
        is_rocksdb = store.provider == "rocksdb"
        conf = batches.offsets(batch).conf if batch in batches.planned else {}
        checked = conf.get(_ROW_CHECKSUMS, "").lower() == "true"
        path = store.path(name)
        return ChangeFile(batch, store.partition, path, is_rocksdb, snapshots, checked)
