"""`commits/N`: batch N is complete. Source: CommitLog (Spark 4.2).

    v1, v2 or v3
    {"nextBatchWatermarkMs": 0, "stateUniqueIds": {"<operator>": [["<id>", ...], ...]}}

From v2 on, with state checkpoint format 2, each partition of an operator has the ids of its stores,
which are part of the names of the state files of this batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.checkpoint.spark_files.offset_log import read_metadata_log
from sparklog.errors import DataCorruptionError

_VERSIONS: Final = ("v1", "v2", "v3")
StateIds = Mapping[int, list[list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit. `state_ids`: operator -> partition -> ids of the partition's stores.

    Format 1 has no ids.
    """

    batch: int
    version: int
    next_watermark_ms: int
    state_ids: StateIds | None


def parse_commit(data: bytes, *, batch: int, path: str) -> Commit:
    """Parse the content of `commits/<batch>`; `path` is for errors.

    Raises: DataCorruptionError: it isn't in Spark's format.
    """
    version, metadata, _ = read_metadata_log(data, path, _VERSIONS)
    watermark = metadata.get("nextBatchWatermarkMs", 0)
    ids = metadata.get("stateUniqueIds")
    try:
        state_ids = None if not ids else {int(key): _partitions(ids[key]) for key in ids}
    except (TypeError, ValueError, LookupError) as error:
        raise DataCorruptionError(f"stateUniqueIds can't be read: {error}", path=path) from error
    if type(watermark) is not int:
        raise DataCorruptionError(f"nextBatchWatermarkMs is {watermark!r}", path=path)
    return Commit(batch=batch, version=version, next_watermark_ms=watermark, state_ids=state_ids)


def _partitions(value: object) -> list[list[str]]:
    if not isinstance(value, list) or not all(isinstance(part, list) for part in value):
        raise TypeError(f"{value!r} is no list of lists")
    return [[str(each) for each in part] for part in value]
