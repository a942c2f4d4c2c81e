"""Plans a truncation to a batch: which files of a checkpoint are dropped or changed.

A truncation to batch N drops: plans and commits of later batches; state files of versions above N +
1 (a stale snapshot could be mistaken for a new snapshot); later operator metadata; the entries of a
file source's own log past N's offset; RocksDB's shared files that no snapshot references any more;
and files that were being written. Their checksums are dropped with them.
"""

import json
import re
import uuid
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from sparklog.checkpoint.batches import Batches, entries_after
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.log_backed.layout import BUILDING, METADATA_PARTITION, RESET, RUNS
from sparklog.checkpoint.spark_files.checksums import hadoop_name, spark_name
from sparklog.checkpoint.spark_files.metadata_logs import log_offset_of
from sparklog.checkpoint.spark_files.state_stores import parse_name, unreferenced_files
from sparklog.errors import DataCorruptionError

_BATCH: Final = re.compile(r"(offsets|commits)/([0-9]+)")
_STATE: Final = re.compile(r"state/[0-9]+/[0-9]+/(?:[^/]+/)?([^/]+)")
_OPERATOR: Final = re.compile(r"state/[0-9]+/_metadata/v2/([0-9]+)")
_SCHEMA: Final = re.compile(r".*/(state/[0-9]+/_stateSchema/.*)")
_RUNS_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class Truncation:
    """A truncation of a checkpoint to `batch`.

    Attributes:
        dropped: The paths to drop, including hidden files.
        replaced: {path: new content}.
    """

    batch: int
    dropped: frozenset[str]
    replaced: Mapping[str, bytes] = field(default_factory=dict)


def plan_truncation(
    batches: Batches, batch: int, root: str | None, *, is_reset: bool
) -> Truncation:
    """Plan the truncation of a checkpoint to `batch`.

    Args:
        batches: The batches of the checkpoint.
        batch: The last batch that remains.
        root: The URL of the result, as Spark names it; None if the checkpoint stays in its place.
        is_reset: Whether earlier drivers and tasks are rejected.

    Raises:
        DataCorruptionError: A snapshot's zip, or an operator's metadata, can't be read.
    """
    checkpoint = batches.checkpoint
    named = {path for path in checkpoint.paths() if _is_later(path, batch)}
    for source, text in batches.offsets(batch).sources.items():
        log_offset = log_offset_of(text)
        if log_offset is not None:
            named.update(entries_after(checkpoint, source, log_offset))
    named |= unreferenced_files(checkpoint, batches.stores, without=named)
    # An unfinished reset and the lock of a directory under construction concern only the directory
    # in which they were written, not its copy.
    dropped = set(named) | {RESET, BUILDING}
    for path in named:
        dropped |= {hadoop_name(path), spark_name(path), hadoop_name(spark_name(path))}
    dropped |= {path for path in checkpoint.files() if path.endswith(".tmp")}
    replaced = {}
    if root is not None:
        replaced = relocated(checkpoint, partial(below, root), without=named)
    # Hadoop would verify the changed content by the checksum of the old content.
    dropped |= {hadoop_name(path) for path in replaced}
    # A fork gets no runs: the record is no path of a checkpoint (files.py), so it is not copied.
    if is_reset:
        _fence(checkpoint, replaced)
    return Truncation(batch, frozenset(dropped), replaced)


def relocated(
    checkpoint: Checkpoint, moved: Callable[[str], str], *, without: Set[str] = frozenset()
) -> dict[str, bytes]:
    """Return the files that change if the checkpoint gets another place.

    Spark writes the absolute paths of schema files into operators' metadata. A copy that kept them
    would read the files of the original.

    Args:
        checkpoint: The checkpoint.
        moved: Returns the new URL of a schema file.
        without: Paths that are not needed.

    Raises:
        DataCorruptionError: An operator's metadata can't be read.
    """
    return {
        path: data
        for path in checkpoint.paths("state")
        if _OPERATOR.fullmatch(path)
        and path not in without
        and (data := _relocated(checkpoint, path, moved)) is not None
    }


def _is_later(path: str, batch: int) -> bool:
    if match := _BATCH.fullmatch(path):
        return int(match[2]) > batch
    if match := _OPERATOR.fullmatch(path):
        return int(match[1]) > batch
    if match := _STATE.fullmatch(path):
        name = parse_name(match[1].removesuffix(".crc"))
        return name is not None and name.version > batch + 1
    return False


def _relocated(
    checkpoint: Checkpoint, path: str, moved: Callable[[str], str]
) -> bytes | None:
    """Return an operator's metadata with other schema files, or None without a change.

    Source: OperatorStateMetadataV2.
    """
    data = checkpoint.read(path)
    version, _, text = data.decode().partition("\n")
    try:
        document = json.loads(text)
        stores = document["stateStoreInfo"]
        for store in stores:
            files = store.get("stateSchemaFilePaths", [])
            store["stateSchemaFilePaths"] = [moved(file) for file in files]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        where, position = checkpoint.locate(path)
        raise DataCorruptionError(
            f"the operator's metadata can't be read: {error}", path=where, position=position
        ) from error
    changed = f"{version}\n{json.dumps(document, separators=(',', ':'))}".encode()
    return None if json.loads(text) == document else changed


def below(root: str, file: str) -> str:
    """Return the path of a schema file if its checkpoint is at the URL `root`."""
    match = _SCHEMA.fullmatch(file)
    return file if match is None else f"{root}/{match[1]}"


def _fence(checkpoint: Checkpoint, replaced: dict[str, bytes]) -> None:
    """Put a new run before all others, so that earlier drivers and tasks are rejected."""
    partition = checkpoint.partitions.get(METADATA_PARTITION)
    known = partition.read(RUNS) if partition is not None else None
    if known is not None:
        runs = [str(uuid.uuid4()), *known.decode().splitlines()][:_RUNS_MAX]
        replaced[RUNS] = "\n".join(runs).encode()
