"""Logs that this process has open for writing, a handle per log; closed at exit.

A log stays open between micro-batches, because opening costs one or two fsyncs. Closing it would
let a broker start on the log, which is not needed while a query runs. If the process dies instead,
the next process that locks the log completes or undoes its last step (sparklog/logdir/PROTOCOL.md,
"LOCK").

Spark does not tell the Python workers in which it commits for `format("sparklog")` when their query
ends, and ends them with a signal, so that no exit handler runs. There a log is only borrowed: it is
closed when it was not borrowed for LINGER_S, or when the signal arrives. Logs that the process
opened otherwise stay open.
"""

import atexit
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Final

from sparklog.config import LOG_KEYS, LogOptions
from sparklog.errors import LogReplacedError, SparklogError
from sparklog.log.log import Log, home_of
from sparklog.opening import open_log, resolved, same_place
from sparklog.secret_digest import secret_digest
from sparklog.sink.options import SinkOptions
from sparklog.storage.home import Home
from sparklog.tiered.reading.options import RemoteOptions

LINGER_S: Final = 2.0
_LOGGER: Final = logging.getLogger("sparklog.sink")
_ENDINGS: Final = (signal.SIGHUP, signal.SIGTERM)  # the signals that end Spark's Python workers

Settings = tuple[LogOptions, str, RemoteOptions]
"""Settings of a handle: other settings need another handle. Storage options are a digest."""

_open: dict[tuple[int, str, Settings], Log] = {}  # by process and path; paths may share a log
_lent: set[Log] = set()  # logs in `_open` that were only borrowed
_mutex = threading.RLock()  # reentrant: a signal handler may run while its thread owns the lock
_borrowed = 0
_timer: threading.Timer | None = None


def settings_of(options: SinkOptions) -> Settings:
    """Return the settings with which these options open a log."""
    return options.log, secret_digest(options.storage_options), options.remote


def shared_log(options: SinkOptions, used: Collection[Home] = ()) -> Log:
    """Return this process's handle of the log at the options' path, and open the log if necessary.

    A log that was removed or replaced is opened again, except for handles in `used`: a query that
    has written to the old log must not continue in another log unnoticed.

    Raises:
        LogReplacedError: A handle in `used` was abandoned.
        SparklogError: The log cannot be opened; see `sparklog.open`.
    """
    with _mutex:
        log = _found_or_opened(options, used)
        _lent.discard(log)
        return log


def _found_or_opened(options: SinkOptions, used: Collection[Home] = ()) -> Log:
    path = resolved(options.path or "")
    # By process: Spark forks its Python workers, and a child must not use its parent's handles.
    key = os.getpid(), path, settings_of(options)
    with _mutex:
        # Another query may have opened the new log first, so the new handle hides the replacement.
        for home in used:
            if home.lost is not None and resolved(home.path) == path:
                raise LogReplacedError(home.lost)
        log = _open.get(key)
        if log is not None and _is_gone(home_of(log), used):
            _LOGGER.warning("%s was removed or replaced since, and is opened again", key[1])
            _forget(log)
            log = None
        if log is None:
            log = _same(path, key[2])
        if log is None:
            values = {each.name: getattr(options.log, each.field) for each in LOG_KEYS.values()}
            log = open_log(
                path, mode="rw", storage_options=options.storage, options=values,
                remote=options.remote,
            )  # fmt: skip
        _open[key] = log
        return log


def _is_gone(home: Home, used: Collection[Home]) -> bool:
    """Abandon the handle of a log that was removed or replaced, unless `used` contains the log.

    Returns True if the handle was abandoned.
    """
    if home in used or home.is_current():
        return False
    home.abandon(
        f"{home.path} was removed or replaced, and another query opened the new log; no row was "
        "written. Restart this query to continue in the new log"
    )
    return True


def _same(path: str, wanted: Settings) -> Log | None:
    """Return the handle of an open log that has this path under another spelling."""
    for (pid, other, settings), log in _open.items():
        is_current = (pid, settings) == (os.getpid(), wanted) and home_of(log).is_current()
        if is_current and same_place(other, path):
            return log
    return None


def _forget(log: Log) -> None:
    _lent.discard(log)
    for key in [key for key, known in _open.items() if known is log]:
        del _open[key]


def close(path: str | None = None) -> None:
    """Close the logs that this process has open for sinks.

    Args:
        path: Close the sinks' log at this path; by default all.

    Examples:
        >>> from sparklog import sink
        >>> sink.close()
    """
    wanted = None if path is None else resolved(path)
    _close(lambda at, log: wanted is None or same_place(at, wanted))


def _close(is_meant: Callable[[str, Log], bool]) -> None:
    with _mutex, contextlib.ExitStack() as closing:
        for key, log in list(_open.items()):
            if is_meant(key[1], log):
                _forget(log)
                if key[0] == os.getpid():
                    closing.callback(log.close)  # close every log, even if another close fails


@contextlib.contextmanager
def borrowed(options: SinkOptions) -> Iterator[Log]:
    """Provide a log in a Python worker of Spark. The log is closed later; see the module."""
    global _borrowed, _timer
    with _mutex:
        _borrowed += 1
        if _timer is not None:
            _timer.cancel()
    _watch_signals()
    try:
        yield _lend(options)
    finally:
        with _mutex:
            _borrowed -= 1
            # The next micro-batch usually follows soon, and opening the log again costs fsyncs.
            _timer = threading.Timer(LINGER_S, _close_idle)
            _timer.daemon = True  # a worker that Spark ends must not wait for the timer
            _timer.start()


def _lend(options: SinkOptions) -> Log:
    with _mutex:
        known = set(_open.values())
        log = _found_or_opened(options)
        if log not in known:  # a SegmentSink of this process may use a log that was open before
            _lent.add(log)
        return log


def _close_idle() -> None:
    with _mutex, contextlib.suppress(SparklogError, FileNotFoundError):
        if not _borrowed:
            idle = set(_lent)
            _close(lambda at, log: log in idle)


def _watch_signals() -> None:
    """Close idle logs before a signal ends this process, unless the signal has a handler."""
    # Python sets signal handlers in the main thread only, and raises an error in others.
    if threading.current_thread() is threading.main_thread():
        for number in _ENDINGS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    # If a log is borrowed, this thread may own its locks. The next process then completes or
    # undoes the step.
    if not _borrowed:
        _at_exit()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)  # the exit status must be that of the signal


def _at_exit() -> None:
    with contextlib.suppress(SparklogError, FileNotFoundError):
        close()


atexit.register(_at_exit)
