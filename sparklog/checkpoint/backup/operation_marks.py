"""Archiving and pruning of one archive keep out of each other's way, by marks in the store.

Each writes its mark, then looks for the other's: so one of them at least sees the other. Times are
those of the store's listing; a mark that is too old was left by a process that died.
"""

import contextlib
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from sparklog.errors import LogLockedError, SparklogError
from sparklog.tiered.object_store.store import Store, StoredObject

RUNNING: Final = "running/"
PRUNING: Final = "pruning/"
RUNNING_MS: Final = 24 * 3_600_000
PRUNING_MS: Final = 3_600_000
_RENEW_MS: Final = 3_600_000


class Mark:
    """A context manager that has a mark in the store for as long as it is open."""

    def __init__(self, store: Store, prefix: str, clock: Callable[[], int]) -> None:
        self._store, self._prefix, self._clock = store, prefix, clock
        self.name = prefix + uuid.uuid4().hex
        self.began_ms = self._renewed_ms = clock()

    def __enter__(self) -> Self:
        self._store.put(self.name, b"\n")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(SparklogError):  # it ages
            self._store.delete([self.name])

    def renew(self) -> None:
        """Say once an hour that it still holds."""
        if self._clock() - self._renewed_ms >= _RENEW_MS:
            self._renewed_ms = self._clock()
            self._store.put(self.name, b"\n")

    def others(self, prefix: str, age_ms: int) -> list[StoredObject]:
        """The marks of that kind that are younger, by the store's own clock. Two requests."""
        mine = {one.name: one for one in self._store.list(self._prefix)}
        now_ms = mine[self.name].time_ms if self.name in mine else self._clock()
        held = self._store.list(prefix)
        return [one for one in held if one.name != self.name and now_ms - one.time_ms < age_ms]


def check_no_pruning(mark: Mark, url: str) -> None:
    """Raise LogLockedError if blocks may be going right now."""
    if mark.others(PRUNING, PRUNING_MS):
        raise LogLockedError(
            f"{url} is being pruned: archive again in some minutes (in an hour, if who pruned died)"
        )
