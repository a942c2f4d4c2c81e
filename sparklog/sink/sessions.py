"""Logs opened for writing, one a process and path; closed at exit.

A log is left open between micro-batches: opening costs an fsync or two, and what a closed log
gains (a broker may start on it) nobody needs while a query runs. A process that dies instead is
no harm: whoever locks the log next completes or undoes what it left (PROTOCOL, "LOCK").
"""

import atexit
import contextlib
import os
import threading

from sparklog.errors import SparklogError
from sparklog.log.log import Log, split_path
from sparklog.sink.options import SinkOptions

_open: dict[tuple[int, str, str], Log] = {}
_mutex = threading.Lock()


def writing(options: SinkOptions) -> Log:
    """Return this process's log for the options' path, opening it if need be."""
    path = ",".join(split_path(options.path or ""))
    key = os.getpid(), path, options.log.flush
    with _mutex:
        log = _open.get(key)
        if log is None:
            values = {
                "flush": options.log.flush,
                "lock.timeout.ms": options.log.lock_timeout_ms,
                "producer.id.expiration.ms": options.log.producer_id_expiration_ms,
                "num.recovery.threads.per.data.dir": options.log.recovery_threads,
                "log.min.free.bytes": options.log.min_free_bytes,
            }
            log = _open[key] = Log(path, mode="rw", options=values)
        return log


def close(path: str | None = None) -> None:
    """Close the logs that this process has open for sinks (those of `path`, or all)."""
    wanted = None if path is None else ",".join(split_path(path))
    with _mutex:
        for key in [k for k in _open if wanted in (None, k[1])]:
            log = _open.pop(key)
            if key[0] == os.getpid():
                log.close()


def _at_exit() -> None:
    with contextlib.suppress(SparklogError, FileNotFoundError):
        close()


atexit.register(_at_exit)
