"""Writes new state files into a copy of a checkpoint, and changes the files that must agree.

    offsets/N                      the provider, and the number of partitions, of batch N + 1
    commits/N                      in format 2 the ids in the names of the state files
    state/<operator>/_metadata/    the number of partitions

Schema files stay, unless they come from a template. Source: OffsetSeqMetadata, CommitMetadata,
OperatorStateMetadata (Spark 4.3).
"""

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from sparklog.checkpoint.batches import PARTITIONS, Batches
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.spark_files.metadata_logs import MetadataLogFile
from sparklog.checkpoint.spark_files.state_stores import metadata_path
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import FileSystem, make_directories, write_durably
from sparklog.logdir.staged_directory import remove_all
from sparklog.state.comparison import FamilyDifference, compare
from sparklog.state.functions import StateFunctions, replaced_families
from sparklog.state.joins import SIDES, Name, rows_of_side
from sparklog.state.plain_copy import edit_metadata_log
from sparklog.state.tables import (
    FORMAT,
    PROVIDER,
    Digest,
    OperatorState,
    StateTables,
    operator_state,
    sum_of,
)
from sparklog.state.template import Template, changed_columns

_SPARK: Final = "org.apache.spark.sql.execution.streaming.state."
PROVIDERS: Final = {
    "hdfs": f"{_SPARK}HDFSBackedStateStoreProvider",
    "rocksdb": f"{_SPARK}RocksDBStateStoreProvider",
}
_WRITING: Final = {
    # A store is written once, as a snapshot; the query's own settings apply when it continues.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    # Counting reads each key before it is written.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
_NEW: Final = ".rewritten"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenOperator:
    """Rows and hashes of an operator's state, before and after a rewrite.

    Attributes:
        operator: The number of the operator.
        name: Spark's name of the operator.
        rows_before: The rows of each state partition of the original.
        rows_after: The rows of each state partition of the new checkpoint.
        hash_before: A hash of each state partition of the original. It does not depend on the
            order of the rows.
        hash_after: A hash of each state partition of the new checkpoint.
        columns: {family: its columns before and after}, if a template changes them.
        families: {family: its rows before and after}, for families that functions changed.
        differences: In a dry run, the keys that functions changed, by family.

    Examples:
        >>> from sparklog.checkpoint import rewrite
        >>> done = rewrite("checkpoint", "wider", partitions=3, dry_run=True, spark=spark)
        >>> for each in done.operators:
        ...     print(each.name, sum(each.rows_after))
    """

    operator: int
    name: str
    rows_before: list[int]
    rows_after: list[int]
    hash_before: list[int]
    hash_after: list[int]
    columns: dict[str, tuple[str, str]]
    families: dict[str, tuple[int, int]]
    differences: list[FamilyDifference]


class StateChange:
    """A change of the state in a copy of a checkpoint, as of its newest batch.

    Args:
        tables: Reads and writes state.
        copy: The copy, in Spark's own files, which is changed.
        batch: The newest batch of the copy.
        provider: The new provider; None to continue with the old provider.
        partitions: The new number of partitions; None to continue with the old number.
        template: The checkpoint of a changed query; None for the same query.
        compares: Whether to report the changed keys.
    """

    def __init__(
        self,
        tables: StateTables,
        copy: Checkpoint,
        batch: int,
        provider: str | None,
        partitions: int | None,
        template: Template | None = None,
        *,
        compares: bool = False,
    ) -> None:
        self._tables, self._copy, self._fs = tables, copy, copy.fs
        self._batch, self._provider, self._partitions = batch, provider, partitions
        self._batches, self._template, self._compares = Batches(copy), template, compares
        self._ids: dict[int, list[list[str]]] = {}
        self._root = f"file:{copy.path}"

    def state(self, operator: int) -> OperatorState:
        """Return the state of an operator as it is now.

        Raises:
            InvalidRequestError: The state can't be read in this way.
            DataCorruptionError: A file of the checkpoint is damaged.
        """
        return operator_state(self._batches, operator, self._batch, self._root)

    def write(
        self,
        operator: int,
        functions: StateFunctions | None,
        origin: OperatorState | None = None,
        before: list[list[Digest]] | None = None,
    ) -> RewrittenOperator | None:
        """Write the state of an operator. Returns None without a change.

        Args:
            operator: The number of the operator.
            functions: Change the rows.
            origin: The state to read; by default the state of the copy.
            before: The digests of the origin, if they are known; otherwise the state is read once
                more.

        Raises:
            InvalidRequestError: The state can't be changed in this way, or a row of the original is
                in the wrong partition.
            DataCorruptionError: Rows without a function were lost, or differ.
        """
        changes = (functions, self._provider, self._partitions, self._template, origin)
        if all(change is None for change in changes):
            return None
        old = origin or self.state(operator)
        wanted = old if self._template is None else self._template.state(old)
        new = self._new_state(wanted)
        replaced = {}
        if functions is not None:
            replaced = replaced_families(self._tables, old, wanted, functions)
        columns = changed_columns(old, new, replaced)
        if before is None:
            before = self._tables.digests(old)
        ids, after = self._tables.write(old, new, replaced)
        _check_kept(old, before, new, after, replaced.keys())
        counts = {
            name: (_rows_of(old, before, name), _rows_of(new, after, other))
            for name, other in sorted(_corresponding(old, new).items())
            if other in replaced
        }
        differences = []
        for name, rows in counts.items() if self._compares else ():
            if name in replaced:  # families of different state formats can't be compared
                given = self._tables.table(old, *name)
                differences.append(compare(operator, "/".join(name), given, replaced[name], rows))
        self._take_over(new)
        self._ids[operator] = [[part[s.store] for s in new.schemas] for part in ids]
        totals = [[sum_of(partition) for partition in each] for each in (before, after)]
        return RewrittenOperator(
            operator=operator,
            name=old.operator.name,
            rows_before=[each.rows for each in totals[0]],
            rows_after=[each.rows for each in totals[1]],
            hash_before=[each.hash for each in totals[0]],
            hash_after=[each.hash for each in totals[1]],
            columns=columns,
            families={"/".join(name): rows for name, rows in counts.items()},
            differences=differences,
        )

    def _new_state(self, old: OperatorState) -> OperatorState:
        format = "1" if self._batches.commit(self._batch).state_ids is None else "2"
        conf = {**old.conf, **_WRITING, FORMAT: format}
        if self._provider is not None:
            conf[PROVIDER] = PROVIDERS[self._provider]
        has_families = any(schema.has_families for schema in old.schemas)
        if conf.get(PROVIDER) == PROVIDERS["hdfs"] and has_families:
            raise InvalidRequestError(
                f"operator {old.operator.id} ({old.operator.name}) needs RocksDB: Spark does not "
                "keep state with column families in the HDFS-backed provider"
            )
        # An operator whose rows are all in one partition keeps it.
        rules = [rule for schema in old.schemas for rule in old.rules(schema).values()]
        is_in_one = all(rule.columns == 0 for rule in rules)
        count = old.partitions if self._partitions is None or is_in_one else self._partitions
        version = self._batch + 1
        return replace(
            old, root=f"{self._root}/{_NEW}", version=version, conf=conf, partitions=count, ids={}
        )

    def _take_over(self, new: OperatorState) -> None:
        """Replace the old state files by the new files."""
        fs, operator = self._fs, f"state/{new.operator.id}"
        made = os.path.join(self._copy.path, _NEW, str(new.operator.id))
        old = os.path.join(self._copy.path, operator)
        if self._template is None:
            for path in self._copy.files():
                if path.startswith(f"{operator}/0/") and "/_metadata/" in path:
                    target = os.path.join(made, path[len(operator) + 1 :])
                    make_directories(fs, os.path.dirname(target))
                    fs.rename(self._copy.real(path), target)
        else:
            for directory in ("_metadata", "_stateSchema"):
                remove_all(fs, os.path.join(old, directory))
            for path, data in self._template.files(new.operator.id).items():
                target = os.path.join(made, path[len(operator) + 1 :])
                make_directories(fs, os.path.dirname(target))
                write_durably(fs, target, data)
        for name in fs.listdir(old):
            if name.isdecimal():
                remove_all(fs, os.path.join(old, name))
        for name in fs.listdir(made):
            fs.rename(os.path.join(made, name), os.path.join(old, name))
            _sync(fs, os.path.join(old, name))
        fs.sync_dir(old)

    def finish(self) -> None:
        """Change the plan, the commit and the metadata, and check the copy.

        Raises:
            InvalidRequestError: Files are missing, because executors wrote them elsewhere.
        """
        self._edit(f"offsets/{self._batch}", self._edit_plan)
        if any(any(map(any, ids)) for ids in self._ids.values()):
            self._edit(f"commits/{self._batch}", self._edit_commit)
        self._copy.refresh()
        is_same = self._partitions is None and self._template is None
        for operator in () if is_same else self._ids:
            path = metadata_path(self._copy, operator, self._batch)
            if path is not None:
                self._edit(path, self._edit_metadata)
        remove_all(self._fs, os.path.join(self._copy.path, _NEW))
        self._copy.refresh()
        obstacle = Batches(self._copy).obstacle(self._batch)
        if obstacle is not None:
            raise InvalidRequestError(
                f"the new state in {self._copy.path} is incomplete ({obstacle}): driver and "
                "executors must reach the same directory; use a target on a disk that they share, "
                "or set scratch to a URL that they reach, such as s3a://bucket/tmp"
            )

    def _edit(self, path: str, edit: Callable[[dict[str, Any]], None]) -> None:
        def edited(file: MetadataLogFile) -> MetadataLogFile:
            edit(file.metadata)
            return file

        edit_metadata_log(self._copy, path, edited)

    def _edit_plan(self, document: dict[str, Any]) -> None:
        conf = document.setdefault("conf", {})
        if self._template is not None:
            kept = {key: conf[key] for key in (PROVIDER, *PARTITIONS) if key in conf}
            document["conf"] = conf = {**self._template.conf, **kept}
        if self._provider is not None:
            conf[PROVIDER] = PROVIDERS[self._provider]
        if self._partitions is not None:
            for key in PARTITIONS:
                if key in conf or key == PARTITIONS[-1]:
                    conf[key] = str(self._partitions)

    def _edit_commit(self, document: dict[str, Any]) -> None:
        ids = document.setdefault("stateUniqueIds", {})
        ids.update({str(operator): found for operator, found in self._ids.items()})

    def _edit_metadata(self, document: dict[str, Any]) -> None:
        count = self._partitions or self._batches.partitions_in_plan(self._batch)
        for store in document["stateStoreInfo"]:
            store["numPartitions"] = count


def _corresponding(old: OperatorState, new: OperatorState) -> dict[Name, Name]:
    """Return {family of the old state: the family of the new state with the same rows}.

    A template can add and remove families. It can change the state format of a join, so that the
    rows of a side are in another family.
    """
    found = {name: name for name in set(old.families()) & set(new.families())}
    if old.operator.is_join:
        families = old.families(), new.families()
        for side in SIDES:
            name, other = (rows_of_side(each, side) for each in families)
            found[name] = other
    return found


def _rows_of(state: OperatorState, digests: list[list[Digest]], family: tuple[str, str]) -> int:
    number = state.families().index(family)
    return sum(partition[number].rows for partition in digests)


def _check_kept(
    state: OperatorState,
    before: list[list[Digest]],
    new_state: OperatorState,
    after: list[list[Digest]],
    replaced: Collection[tuple[str, str]],
) -> None:
    """Check that the rows of families without a function are all there, and unchanged."""
    names = new_state.families()
    for number, family in enumerate(state.families()):
        if family in replaced or family not in names:
            continue
        old = sum_of([partition[number] for partition in before])
        new = sum_of([partition[names.index(family)] for partition in after])
        if old != new:
            raise DataCorruptionError(
                f"{old.rows} rows of {'/'.join(family)} were read, and {new.rows} rows were "
                "written, or their content differs, so nothing was kept",
                path=state.root,
            )


def _sync(fs: FileSystem, path: str) -> None:
    """Make a directory durable, with everything in it. Spark doesn't sync files."""
    if not fs.is_dir(path):
        with fs.open(path) as file:
            file.sync()
        return
    for name in fs.listdir(path):
        _sync(fs, os.path.join(path, name))
    fs.sync_dir(path)
