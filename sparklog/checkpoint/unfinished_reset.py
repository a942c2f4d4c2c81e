"""A reset that was cut off between checkpoint and log: whoever comes next completes it.

`sparklog.reset` at the root of the checkpoint, JSON: {"log", "writer", "batch", "time"}. The
checkpoint is cut back already when it shows; the log's `reset` record may be missing, and is
written again at will.
"""

import contextlib
import json
import os
from typing import Any, Final

from sparklog.checkpoint.log_backed.layout import RESET
from sparklog.clock import Clock, system_clock
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import LOCAL, FileSystem, read_bytes, write_durably
from sparklog.log.log import Log
from sparklog.logdir.ledger import fold, ledger_path, whole_end
from sparklog.logdir.paths import split_path
from sparklog.storage.log_state import LogState, is_writer_of

_FIELDS: Final = {"log": str, "writer": str, "batch": int, "time": int}


def note(fs: FileSystem, directory: str, log: str, writer: str, batch: int, now_ms: int) -> None:
    """Write down, durably, that the log has to follow the checkpoint in `directory`."""
    document = {"log": log, "writer": writer, "batch": batch, "time": now_ms}
    write_durably(fs, os.path.join(directory, RESET), json.dumps(document).encode())


def complete(
    path: str, *, fs: FileSystem = LOCAL, clock: Clock = system_clock
) -> dict[str, Any] | None:
    """Let the log follow a checkpoint that was reset, if it has yet to; returns what was noted.

    Cost: a look for one file; with a pending reset a commit to the log. Idempotent.
    Raises: DataCorruptionError: the note can't be read; InvalidRequestError, LogLockedError,
        StorageUnavailableError: the log can't be written; the note stays.
    """
    place = os.path.join(path, RESET)
    try:
        data = read_bytes(fs, place)
    except FileNotFoundError:
        return None
    noted = _parse(data, place)
    _check_there(noted["log"], place, fs)
    with Log(noted["log"], mode="rw", fs=fs, clock=clock) as log:
        log.reset(noted["writer"], noted["batch"])
    with contextlib.suppress(FileNotFoundError):  # somebody else did the same
        fs.unlink(place)
    fs.sync_dir(path)
    return noted


def check_log(path: str | os.PathLike[str], writer: str, fs: FileSystem) -> None:
    """Raises: InvalidRequestError: no log of sparklog's is there, so that none must be made, or
    `writer`, or that query, never wrote to it: a reset would be nothing to the log that it did
    write to."""
    home = split_path(path)[0]
    if not fs.is_dir(ledger_path(home)):
        raise InvalidRequestError(f"{home} holds no log that sparklog wrote: give the sink's log")
    state = LogState()
    fold(fs, home, whole_end(fs, home), state=state, first=None)
    if not any(is_writer_of(name, writer) for name in state.writers):
        held = ", ".join(sorted(state.writers)) or "none"
        raise InvalidRequestError(
            f"{writer} has committed nothing to {home}; its writers: {held}. Give the sink's log, "
            "or writer="
        )


def _check_there(log: str, place: str, fs: FileSystem) -> None:
    if not fs.is_dir(ledger_path(split_path(log)[0])):
        raise InvalidRequestError(
            f"{place}: the checkpoint was reset, and {log} has yet to follow, but no log is there: "
            "bring it back; or, if it is gone for good, remove that file"
        )


def _parse(data: bytes, place: str) -> dict[str, Any]:
    try:
        noted = json.loads(data)
        if any(type(noted[key]) is not kind for key, kind in _FIELDS.items()):
            raise ValueError(f"want {sorted(_FIELDS)}")
    except (ValueError, KeyError, TypeError) as error:
        raise DataCorruptionError(
            f"it can't be read ({error}): call sparklog.Log.reset by hand, then remove it",
            path=place,
        ) from error
    found: dict[str, Any] = noted
    return found
