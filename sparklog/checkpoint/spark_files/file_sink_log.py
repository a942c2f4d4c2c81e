"""The log of Spark's file sink: which files each batch of a query wrote.

    <output>/_spark_metadata/12           v1, then a JSON object per file of batch 12
    <output>/_spark_metadata/19.compact   the same for all batches up to 19

The sink skips every batch that is not newer than the newest batch in its log. Every tenth batch (by
default) compacts the log and needs the files of all batches since the last compaction.
Source: FileStreamSinkLog, CompactibleFileStreamLog (Spark 4.2).
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import FileSystem, read_bytes, write_durably

SINK_LOG: Final = "_spark_metadata"
_COMPACT: Final = ".compact"
_VERSION: Final = "v1"
_INTERVAL: Final = 10
"""Default of spark.sql.streaming.fileSink.log.compactInterval."""


@dataclass(frozen=True, slots=True)
class FileSinkLog:
    """The log of the sink that writes to the directory `output`.

    Attributes:
        batches: The batches with a file of their own.
        compacted: The batches whose file also covers all earlier batches.
    """

    fs: FileSystem
    output: str
    batches: frozenset[int]
    compacted: Sequence[int]

    @classmethod
    def open(cls, fs: FileSystem, output: str) -> "FileSinkLog":
        """List the log.

        Raises:
            InvalidRequestError: No file sink wrote to `output`.
        """
        directory = os.path.join(output, SINK_LOG)
        names = fs.listdir(directory) if fs.is_dir(directory) else []
        compacted = [n.removesuffix(_COMPACT) for n in names if n.endswith(_COMPACT)]
        batches = frozenset(int(name) for name in names if name.isdecimal())
        found = cls(fs, output, batches, sorted(int(n) for n in compacted if n.isdecimal()))
        if not batches and not found.compacted:
            raise InvalidRequestError(
                f"{output} has no {SINK_LOG} with batches, so no query with Spark's file sink "
                "wrote there: use the directory that the query writes to",
                path=output,
            )
        return found

    @property
    def newest(self) -> int:
        """The newest batch that the sink wrote."""
        return max([*self.batches, *self.compacted])

    def entries(self, batch: int, next_planned_ms: int | None) -> list[dict[str, Any]]:
        """Return the entries of all batches up to `batch`, in the order of the log.

        Args:
            batch: The last batch.
            next_planned_ms: When the next batch was planned. A compacted file does not say which
                batch an entry belongs to; entries of later batches are younger than this time.

        Raises:
            InvalidRequestError: The log ends before `batch`, or the entries up to `batch` can't be
                separated from later entries.
            DataCorruptionError: A file of the log can't be read.
        """
        if self.newest < batch:
            raise InvalidRequestError(
                f"the newest batch in {self._path('')} is {self.newest}, so {self.output} is not "
                f"the output of batch {batch}: use the directory that the query writes to",
                path=self.output,
            )
        compacted = max((c for c in self.compacted if c <= batch), default=None)
        first = 0 if compacted is None else compacted + 1
        if all(number in self.batches for number in range(first, batch + 1)):
            names = [] if compacted is None else [f"{compacted}{_COMPACT}"]
            names += map(str, range(first, batch + 1))
            return [entry for name in names for entry in self._read(name)]
        later = next((c for c in self.compacted if c > batch), None)
        if later is None:
            raise DataCorruptionError(
                f"the log has no files for some of the batches {first} to {batch}",
                path=self._path(""),
            )
        return self._split(f"{later}{_COMPACT}", batch, next_planned_ms)

    def _split(self, name: str, batch: int, next_planned_ms: int | None) -> list[dict[str, Any]]:
        """Return the leading entries of a compacted file that are older than `next_planned_ms`."""
        entries = self._read(name)
        times = [int(entry["modificationTime"]) for entry in entries]
        count = sum(next_planned_ms is not None and time < next_planned_ms for time in times)
        if next_planned_ms is None or max(times[:count], default=0) >= next_planned_ms:
            raise InvalidRequestError(
                f"{self._path(name)} does not show which files the batches up to {batch} wrote, "
                "because the times of the files are not in the order of the batches. Go back to a "
                f"batch that has a separate file in {self._path('')}, or to batch "
                f"{' or '.join(map(str, self.compacted))}",
                path=self._path(name),
            )
        return entries[:count]

    def _read(self, name: str) -> list[dict[str, Any]]:
        path = self._path(name)
        try:
            version, *lines = read_bytes(self.fs, path).decode().splitlines()
            if version != _VERSION:
                raise ValueError(f"the version is {version[:20]!r}, but must be {_VERSION!r}")
            entries = [json.loads(line) for line in lines if line]
            for entry in entries:
                str(entry["path"]), int(entry["modificationTime"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataCorruptionError(f"the file can't be read: {error}", path=path) from error
        return entries

    def _path(self, name: str) -> str:
        return os.path.join(self.output, SINK_LOG, name).rstrip("/")


def write_sink_log(
    fs: FileSystem, directory: str, entries: Sequence[dict[str, Any]], batch: int, interval: int
) -> None:
    """Write a durable log of these entries with `batch` as the newest batch.

    A single file contains the entries: the file of the last compacted batch, or of batch 0. Files
    without entries follow, because the next compaction expects a file for each batch.
    """
    fs.mkdir(directory)
    start = (batch + 1) // interval * interval - 1
    lines = [_VERSION, *(json.dumps(entry, separators=(",", ":")) for entry in entries)]
    name = f"{start}{_COMPACT}" if start >= 0 else "0"
    write_durably(fs, os.path.join(directory, name), "\n".join(lines).encode(), sync_dir=False)
    for number in range(max(start, 0) + 1, batch + 1):
        path = os.path.join(directory, str(number))
        write_durably(fs, path, _VERSION.encode(), sync_dir=False)
    fs.sync_dir(directory)


def compact_interval(compacted: Sequence[int]) -> int:
    """Return after how many batches Spark compacts a log that has these compacted files."""
    if not compacted:
        return _INTERVAL
    if len(compacted) > 1:
        return compacted[-1] - compacted[-2]
    count = compacted[0] + 1
    if count <= _INTERVAL or count / 2 <= _INTERVAL:
        return count
    divisors = (n for n in range(_INTERVAL, count // 2 + 1) if not count % n)
    return next(divisors, count)


def file_of(entry: dict[str, Any]) -> str:
    """Return the local path of a data file, from the URI in an entry of the sink's log."""
    return unquote(urlsplit(entry["path"]).path)


def moved(entry: dict[str, Any], path: str) -> dict[str, Any]:
    """Return an entry for the same file at another local path."""
    return {**entry, "path": "file://" + quote(path, safe="/=!$&'()*+,;:@~")}
