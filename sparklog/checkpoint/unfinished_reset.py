"""Completes a reset that was interrupted between checkpoint and log.

`sparklog.reset` at the root of the checkpoint is JSON: {"log", "writer", "batch", "time"}, or
{"output", "batch", "time"} for a file sink's log (file_sink_cut.py). If the file exists, the
checkpoint is truncated already. The log's `reset` record may be missing; writing it again has no
effect.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from sparklog.checkpoint.file_sink_cut import finish_cut
from sparklog.checkpoint.log_backed.layout import RESET
from sparklog.clock import Clock, system_clock
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import LOCAL, FileSystem, read_bytes, write_durably
from sparklog.log.log import home_of
from sparklog.opening import holds_own_log, open_log, resolved
from sparklog.storage.log_state import LogState, is_writer_of

_OF_LOG: Final = {"log": str, "writer": str, "batch": int, "time": int}
_OF_FILES: Final = {"output": str, "batch": int, "time": int}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedReset:
    """A reset that is not finished yet.

    Attributes:
        log: The log that still has to be reset, so that `writer` can commit the batches after
            `batch` again.
        writer: The query's name in the log.
        output: The directory of a file sink with a staged log that still has to be put in place.
        batch: The batch that the checkpoint was reset to.
        time_ms: When the checkpoint was reset.
    """

    log: str | None = None
    writer: str | None = None
    output: str | None = None
    batch: int
    time_ms: int

    def encode(self) -> bytes:
        """Return the content of `sparklog.reset`."""
        fields = asdict(self)
        fields["time"] = fields.pop("time_ms")
        return json.dumps({k: v for k, v in fields.items() if v is not None}).encode()

    @classmethod
    def parse(cls, data: bytes, path: str) -> Self:
        """Read the content of the file at `path`.

        Raises:
            DataCorruptionError: The content is not such a document.
        """
        try:
            fields = json.loads(data)
            wanted = _OF_FILES if "output" in fields else _OF_LOG
            if any(type(fields[key]) is not kind for key, kind in wanted.items()):
                raise ValueError(f"the fields must be {sorted(wanted)}")
            noted = {key: fields[key] for key in wanted if key != "time"}
        except (ValueError, KeyError, TypeError) as error:
            raise DataCorruptionError(
                f"the file can't be read ({error}): the checkpoint was reset, but possibly not the "
                "sink of the query. With the query stopped, remove the file and reset the "
                "checkpoint to its newest batch, with the sink's log (--log) or directory "
                "(--output): `sparklog checkpoint reset CHECKPOINT --to BATCH`",
                path=path,
            ) from error
        return cls(**noted, time_ms=fields["time"])


def write(fs: FileSystem, directory: str, unfinished: UnfinishedReset) -> None:
    """Record durably that the log still has to follow the checkpoint in `directory`."""
    write_durably(fs, os.path.join(directory, RESET), unfinished.encode())


def complete(
    checkpoint: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> UnfinishedReset | None:
    """Reset the log of a checkpoint with an unfinished reset. Return the reset, or None.

    Idempotent. The options of fsspec for a log in a bucket are never stored.

    Raises:
        DataCorruptionError: The file can't be read.
        InvalidRequestError: The log does not exist; the file stays.
        LogLockedError: Another process holds the log's lock; the file stays.
        StorageUnavailableError: The log can't be written; the file stays.

    Cost:
        A look-up of a file; with an unfinished reset a commit to the log.
    """
    path = os.path.join(checkpoint, RESET)
    try:
        data = read_bytes(fs, path)
    except FileNotFoundError:
        return None
    unfinished = UnfinishedReset.parse(data, path)
    reset_sink(unfinished, path, storage_options=storage_options, fs=fs, clock=clock)
    # The request is removed last: a crash before this line repeats the reset, which is idempotent.
    with contextlib.suppress(FileNotFoundError):  # another process did the same
        fs.unlink(path)
    fs.sync_dir(checkpoint)
    return unfinished


def reset_sink(
    unfinished: UnfinishedReset,
    path: str,
    *,
    storage_options: Mapping[str, Any] | None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> None:
    """Reset the sink of a checkpoint with an unfinished reset. Idempotent.

    Args:
        unfinished: The reset.
        path: The file with the reset, for errors.
        storage_options: Options of fsspec for a log in a bucket.
        fs: The file system of the log or the output.
        clock: The current time in milliseconds since the epoch.

    Raises: as `complete`.
    """
    if unfinished.output is not None:
        finish_cut(fs, unfinished.output)
    elif unfinished.log is not None and unfinished.writer is not None:
        # Opening in mode "rw" would create an empty log at a place where the log is missing, and
        # the request would be removed although the query's log was never reset.
        _check_holds_log(unfinished.log, path, storage_options, fs)
        with open_log(
            unfinished.log, mode="rw", storage_options=storage_options, fs=fs, clock=clock
        ) as log:
            log.reset(unfinished.writer, unfinished.batch)


def _check_holds_log(
    place: str, path: str, storage_options: Mapping[str, Any] | None, fs: FileSystem
) -> None:
    if not holds_own_log(place, storage_options, fs):
        raise InvalidRequestError(
            f"{path}: the checkpoint was reset, and the log {place} must be reset too, but there "
            "is no log: restore the log; or, if it is lost permanently, remove this file",
            path=path,
        )


def check_log(
    path: str | os.PathLike[str],
    writer: str,
    fs: FileSystem,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Check that `writer`, or the query with that id, has written to the log at `path`.

    Raises:
        InvalidRequestError: The writer has not, so that a reset would not affect the query's actual
            log; or there is no log, and none must be created.
    """
    place = resolved(path)
    if not holds_own_log(path, storage_options, fs):
        raise InvalidRequestError(
            f"{place} contains no log that sparklog wrote: use the log of the query's sink",
            path=place,
        )
    state = LogState()
    with open_log(path, storage_options=storage_options, fs=fs) as log:
        ledger = home_of(log).ledger
        ledger.fold(state, ledger.end, first=None)
    if not any(is_writer_of(name, writer) for name in state.writers):
        held = ", ".join(sorted(state.writers)) or "none"
        raise InvalidRequestError(
            f"{place} has no commits of the writer {writer}; its writers are: {held}. Use the log "
            "of the query's sink, or pass the writer (option --writer, writer=)"
        )
