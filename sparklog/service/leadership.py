"""`Leadership`: the log that a service has open, and whether it leads: does the background work."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from sparklog.clock import Clock
from sparklog.errors import LogReplacedError
from sparklog.fs import FileSystem
from sparklog.log.log import Log
from sparklog.logdir.home import commits_of, open_log
from sparklog.logdir.ledger import has_ledger
from sparklog.service.options import ServiceOptions
from sparklog.service.rounds import Map, Rounds
from sparklog.service.tiering.remote_log_manager import RemoteLogManager
from sparklog.storage.lease import Lease

_LOGGER: Final = logging.getLogger("sparklog.service")


class Leadership:
    """Opens the log with the lease and the work on it, and closes them together.

    The log may be open without the lease: another service leads then, and this one stands by.
    """

    def __init__(
        self,
        path: str,
        *,
        options: ServiceOptions,
        log_options: Mapping[str, Any],
        remote_log_manager: Callable[[Log, Lease], RemoteLogManager | None],
        map: Map | None,
        stopping: Callable[[], bool],
        fs: FileSystem,
        clock: Clock,
    ) -> None:
        self._path, self._options, self._log_options = path, options, log_options
        self._tiering, self._map, self._stopping = remote_log_manager, map, stopping
        self._fs, self._clock = fs, clock
        self._mutex = threading.Lock()  # opening, closing and the lease
        self._log: Log | None = None
        self._stood_by = False
        self.lease: Lease | None = None
        """Of the log that was opened last."""
        self.rounds: Rounds | None = None
        """The work; None while the log isn't open."""

    def open(self) -> tuple[Rounds, bool]:
        """Return the work, and whether this opened the log for it.

        Raises: what `sparklog.open` raises.
        """
        with self._mutex:
            if self.rounds is not None:
                return self.rounds, False
            return self._open(), True

    def _open(self) -> Rounds:
        log = open_log(
            self._path, mode="rw", options=self._log_options, fs=self._fs, clock=self._clock,
            tidy=False,
        )  # fmt: skip
        lease = log.service_lease()
        try:
            remote_log_manager = self._tiering(log, lease)
        except BaseException:
            log.close()
            raise
        self._log, self.lease = log, lease
        self.rounds = Rounds(
            commits_of(log),
            lease,
            self._options,
            self._map,
            stopping=self._stopping,
            remote_log_manager=remote_log_manager,
        )
        return self.rounds

    def _reopen_replaced(self) -> None:
        """Go on in the log that took the place of ours; it is not made where there is none."""
        assert self._log is not None
        session = commits_of(self._log)
        if session.lost is None:
            session.lock.check_there()
            return
        if not has_ledger(self._fs, session.home):
            raise LogReplacedError(session.lost)
        _LOGGER.warning("%s holds another log, or an earlier state: opening it", self._path)
        if self.lease is not None:
            self.lease.release()
        self._open()

    def leading(self) -> Rounds | None:
        """Return the work if the lease is ours; takes it if it is free.

        Raises: LogReplacedError while no log is there; what opening the one that took its place
        raises.
        """
        with self._mutex:
            if self._log is not None:
                self._reopen_replaced()
            rounds, lease = self.rounds, self.lease
            if rounds is None or lease is None:
                return None
            if lease.held:
                return rounds
            if lease.acquire():
                self._stood_by = False
                rounds.adopt_deleted_files(self._clock())
                return rounds
            if not self._stood_by:
                who = lease.describe()
                _LOGGER.warning("%s: %s does the background work; standing by", self._path, who)
            self._stood_by = True
            return None

    def close(self) -> None:
        """Give up the lease and close the log. Idempotent."""
        with self._mutex:
            if self.lease is not None:
                self.lease.release()
            log, self._log, self.rounds = self._log, None, None
            if log is not None:
                log.close()
