"""Locks of a backup repository: archiving and pruning exclude one another by objects in the store.

    running/<id>    an archiving is under way: blocks that no snapshot names must stay
    pruning/<id>    a pruning is under way: nothing may be archived

Each writes its own object, then lists the other kind, so that at least one of two sees the other.
Ages are by the times of the store's listing; one that is too old was left by a process that died.
"""

import contextlib
import uuid
from collections.abc import Callable
from typing import Final, Self

from sparklog.errors import LogLockedError, SparklogError
from sparklog.tiered.object_store.store import Store, StoredObject

ARCHIVING: Final = "running/"
PRUNING: Final = "pruning/"
ARCHIVING_STALE_MS: Final = 24 * 3_600_000
PRUNING_STALE_MS: Final = 3_600_000
_REFRESH_MS: Final = 3_600_000


class RepositoryLock:
    """A context manager that keeps a lock object below `prefix` for as long as it is open."""

    def __init__(self, store: Store, prefix: str, clock: Callable[[], int]) -> None:
        self._store, self._prefix, self._clock = store, prefix, clock
        self.name = prefix + uuid.uuid4().hex
        self.began_ms = self._refreshed_ms = clock()

    def __enter__(self) -> Self:
        self._store.put(self.name, b"\n")
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(SparklogError):  # it gets stale
            self._store.delete([self.name])

    def refresh(self) -> None:
        """Write it anew once an hour, so that it doesn't get stale."""
        if self._clock() - self._refreshed_ms >= _REFRESH_MS:
            self._refreshed_ms = self._clock()
            self._store.put(self.name, b"\n")

    def others(self, prefix: str, stale_ms: int) -> list[StoredObject]:
        """The other locks below `prefix` that aren't stale, by the store's clock. Two requests."""
        mine = {one.name: one for one in self._store.list(self._prefix)}
        now_ms = mine[self.name].time_ms if self.name in mine else self._clock()
        held = self._store.list(prefix)
        return [one for one in held if one.name != self.name and now_ms - one.time_ms < stale_ms]


def check_no_pruning(lock: RepositoryLock, url: str) -> None:
    """Raise LogLockedError if blocks may be going right now."""
    if lock.others(PRUNING, PRUNING_STALE_MS):
        raise LogLockedError(
            f"{url} is being pruned: archive again in some minutes (in an hour, if who pruned "
            "died)",
            path=url,
        )
