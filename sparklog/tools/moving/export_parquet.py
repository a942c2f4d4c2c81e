"""A range of a topic as Parquet: one file, or a directory that grows from export to export."""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Final

import pyarrow.parquet

from sparklog.clock import monotonic_ms
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.fetch import schema_of
from sparklog.log.log import Log
from sparklog.log.positions import Position
from sparklog.progress import Progress, shows_progress
from sparklog.tools.moving.exporting import (
    TABLE_COLUMNS,
    Exported,
    Meter,
    pieces,
    planned,
    resumed,
)

FILE_BYTES: Final = 256 << 20
"""So many bytes of Arrow data are one file of a directory."""

_SCHEMA: Final = schema_of(TABLE_COLUMNS)
_TOPIC_ID: Final = "sparklog.topic.id"  # in a file's metadata; another topic may have the name
_NAME: Final = re.compile(r"(?P<topic>.+)-(?P<p>\d+)-(?P<first>\d{20})-(?P<end>\d{20})\.parquet")


@shows_progress("exporting")
def export_parquet(
    log: Log,
    topic: str,
    to: str | os.PathLike[str],
    *,
    start: Position = "earliest",
    end: Position = "latest",
    isolation: str = "read_committed",
    compression: str = "zstd",
    progress: Progress | None = None,
    fs: FileSystem = LOCAL,
) -> Exported:
    """Write the records of [start, end) with the columns of `Log.read`.

    `to`: a name that ends with .parquet is one file, written anew. Else a directory, with files
    TOPIC-PARTITION-FIRST-END.parquet; an export goes on where the files there end, so none has a
    record twice. A file gets its name when it is whole and durable.
    Raises: InvalidRequestError: the files there came from another topic of this name, ...;
        OffsetOutOfRangeError, StorageUnavailableError; as `Log.read`.
    """
    began = monotonic_ms()
    to = os.fspath(to)
    done = Exported(topic=topic, to=to)
    first, last = planned(log, topic, start, end, isolation)
    topic_id = log.view.topic_id(topic, min(first)) or ""
    if to.endswith(".parquet"):
        if fs.is_dir(to):
            raise InvalidRequestError(f"{to} is a directory, the name is that of a file")
        if not fs.is_dir(os.path.dirname(os.path.abspath(to))):
            raise InvalidRequestError(f"{to} can't be made, the directory does not exist")
        meter = Meter(first, last, progress)
        with _written(fs, to, topic_id, compression) as writer:
            for p in first:
                for rows in pieces(log, topic, p, first[p], last[p], isolation=isolation,
                                   columns=TABLE_COLUMNS):  # fmt: skip
                    writer.write_batch(rows)
                    done.records += rows.num_rows
                meter.add(last[p] - first[p])
                done.offsets[p] = (first[p], last[p])
        done.files = 1
    else:
        at = resumed(log, topic, start, first, last, _ends(fs, to, topic, topic_id), to)
        meter = Meter(at, last, progress)
        for p in at:
            _partition(log, topic, p, (at[p], last[p]), to, topic_id, isolation, compression,
                       done, meter, fs)  # fmt: skip
    done.took_ms = int(monotonic_ms() - began)
    return done


def _ends(fs: FileSystem, directory: str, topic: str, topic_id: str) -> dict[int, int]:
    """Where the files of a directory end, if they are this topic's."""
    if fs.exists(directory) and not fs.is_dir(directory):
        raise InvalidRequestError(f"{directory} is a file: want a directory, or a .parquet name")
    if not fs.is_dir(directory):
        try:
            fs.mkdir(directory)
        except FileNotFoundError:
            raise InvalidRequestError(
                f"{directory} can't be made, the directory above it does not exist"
            ) from None
        return {}
    newest: dict[int, tuple[int, str]] = {}
    for name in fs.listdir(directory):
        found = _NAME.fullmatch(name)
        if found is not None and found["topic"] == topic:
            p = int(found["p"])
            newest[p] = max(newest.get(p, (0, "")), (int(found["end"]), name))
    for _, name in newest.values():
        _check_origin(os.path.join(directory, name), topic, topic_id)
    return {p: end for p, (end, _) in newest.items()}


def _check_origin(path: str, topic: str, topic_id: str) -> None:
    try:
        found = pyarrow.parquet.read_metadata(path).metadata or {}
    except pyarrow.ArrowInvalid as error:
        raise InvalidRequestError(f"{path} is no Parquet file: {error}") from None
    except OSError as error:
        raise StorageUnavailableError(f"{path}: {error}") from error
    if found.get(_TOPIC_ID.encode(), topic_id.encode()) != topic_id.encode():
        raise InvalidRequestError(
            f"{path} came from another topic {topic}, whose offsets say nothing of this one's: "
            "export to another directory"
        )


def _partition(
    log: Log,
    topic: str,
    p: int,
    span: tuple[int, int],
    to: str,
    topic_id: str,
    isolation: str,
    compression: str,
    done: Exported,
    meter: Meter,
    fs: FileSystem,
) -> None:
    at, end = span
    given = pieces(log, topic, p, at, end, isolation=isolation, columns=TABLE_COLUMNS)
    while at < end:
        part = os.path.join(to, f".{topic}-{p}-{at:020}.part")
        size, upto = 0, end
        with _written(fs, part, topic_id, compression) as writer:
            for rows in given:
                writer.write_batch(rows)
                done.records += rows.num_rows
                size += rows.nbytes
                if size >= FILE_BYTES:
                    upto = rows.column("offset")[rows.num_rows - 1].as_py() + 1
                    break
        fs.rename(part, os.path.join(to, f"{topic}-{p}-{at:020}-{upto:020}.parquet"))
        fs.sync_dir(to)
        meter.add(upto - at)
        done.files += 1
        done.offsets[p] = (span[0], upto)
        at = upto


@contextlib.contextmanager
def _written(
    fs: FileSystem, path: str, topic_id: str, compression: str
) -> Iterator["pyarrow.parquet.ParquetWriter"]:
    """Give a writer of a file that has its name only once it is whole."""
    home, name = os.path.split(os.path.abspath(path))
    waiting = os.path.join(home, f".{name}.tmp")
    try:
        with pyarrow.parquet.ParquetWriter(waiting, _SCHEMA, compression=compression) as writer:
            writer.add_key_value_metadata({_TOPIC_ID: topic_id})
            yield writer
        with fs.open(waiting, write=True) as file:
            file.sync()
        fs.rename(waiting, os.path.join(home, name))
        fs.sync_dir(home)
    except OSError as error:
        raise StorageUnavailableError(f"{path}: {error}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(waiting)
