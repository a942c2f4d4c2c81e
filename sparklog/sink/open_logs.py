"""Logs opened for writing, one a process and log, however its path is spelled; closed at exit.

A log is left open between micro-batches: opening costs an fsync or two, and what a closed log
gains (a broker may start on it) nobody needs while a query runs. A process that dies instead is
no harm: whoever locks the log next completes or undoes what it left (PROTOCOL, "LOCK").

The Python workers in which Spark commits for `format("sparklog")` are told nothing of their query's
end, and end by a signal, so that no exit handler runs. There a log is only borrowed: it is closed
when nothing was borrowed for LINGER_S, or when Spark sends the signal. What a process has opened
for itself stays open.
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
_ENDINGS: Final = (signal.SIGHUP, signal.SIGTERM)  # what ends Spark's Python workers

Settings = tuple[LogOptions, str, RemoteOptions]
"""How a log is opened: two that differ in it are two handles. Storage options as a digest."""

_open: dict[tuple[int, str, Settings], Log] = {}  # by process and path; two may be one log
_lent: set[Log] = set()  # of these, what only borrowers have asked for
_mutex = threading.RLock()  # a signal may come while its own thread holds it
_borrowed = 0
_timer: threading.Timer | None = None


def settings_of(options: SinkOptions) -> Settings:
    """Return how these options open a log."""
    return options.log, secret_digest(options.storage_options), options.remote


def shared_log(options: SinkOptions, used: Collection[Home] = ()) -> Log:
    """Return this process's log for the options' path, opening it if need be.

    A log that was removed or replaced since it was opened is opened anew, but for those who have
    written to it by its handle in `used`: their rows would go on in another log in silence.

    Raises: what opening raises; LogReplacedError where a handle in `used` was given up already.
    """
    with _mutex:
        log = _found_or_opened(options, used)
        _lent.discard(log)
        return log


def _found_or_opened(options: SinkOptions, used: Collection[Home] = ()) -> Log:
    path = resolved(options.path or "")
    key = os.getpid(), path, settings_of(options)
    with _mutex:
        for home in used:
            if home.lost is not None and resolved(home.path) == path:
                raise LogReplacedError(home.lost)
        log = _open.get(key)
        if log is not None and _is_gone(home_of(log), used):
            _LOGGER.warning("%s was removed or replaced since it was opened: opening it", key[1])
            _forget(log)
            log = None
        if log is None:
            log = _open[key] = _same(path, key[2]) or _open_log(path, options)
        return log


def _is_gone(home: Home, used: Collection[Home]) -> bool:
    """Give up a log that was removed or replaced, but for one that is in use."""
    if home in used or home.is_current():
        return False
    home.abandon(
        f"{home.path} was removed or replaced, and opened anew by another query; "
        "nothing was written. Start this query again to go on there"
    )
    return True


def _same(path: str, wanted: Settings) -> Log | None:
    """Find an open log that is at this path, by another name."""
    for (pid, other, how), log in _open.items():
        ours = (pid, how) == (os.getpid(), wanted) and home_of(log).is_current()
        if ours and same_place(other, path):
            return log
    return None


def _open_log(path: str, options: SinkOptions) -> Log:
    values = {key.name: getattr(options.log, key.field) for key in LOG_KEYS.values()}
    return open_log(
        path, mode="rw", storage_options=options.storage, options=values, remote=options.remote
    )


def _forget(log: Log) -> None:
    _lent.discard(log)
    for key in [key for key, known in _open.items() if known is log]:
        del _open[key]


def close(path: str | None = None) -> None:
    """Close the logs that this process has open for sinks (those of `path`, or all)."""
    wanted = None if path is None else resolved(path)
    _close(lambda at, log: wanted is None or same_place(at, wanted))


def _close(is_meant: Callable[[str, Log], bool]) -> None:
    with _mutex, contextlib.ExitStack() as closing:
        for key, log in list(_open.items()):
            if is_meant(key[1], log):
                _forget(log)
                if key[0] == os.getpid():
                    closing.callback(log.close)  # each, though another one fails


@contextlib.contextmanager
def borrowed(options: SinkOptions) -> Iterator[Log]:
    """Give the log to a worker of Spark's; see the module's text for when it is closed."""
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
            _timer = threading.Timer(LINGER_S, _close_idle)
            _timer.daemon = True
            _timer.start()


def _lend(options: SinkOptions) -> Log:
    with _mutex:
        known = set(_open.values())
        log = _found_or_opened(options)
        if log not in known:
            _lent.add(log)
        return log


def _close_idle() -> None:
    with _mutex, contextlib.suppress(SparklogError, FileNotFoundError):
        if not _borrowed:
            idle = set(_lent)
            _close(lambda at, log: log in idle)


def _watch_signals() -> None:
    """Close before a signal ends this process, where nobody else handles it."""
    if threading.current_thread() is threading.main_thread():
        for number in _ENDINGS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    # Else this very thread may hold its locks; the next holder completes or undoes.
    if not _borrowed:
        _at_exit()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _at_exit() -> None:
    with contextlib.suppress(SparklogError, FileNotFoundError):
        close()


atexit.register(_at_exit)
