"""Copies of the objects that a repair replaces or removes: `quarantine/<time>/<name>`.

sparklog never reads or deletes these copies. They contain all data of the originals, so delete the
copies when the repair is confirmed, and before records must be erased.
"""

import re
from collections.abc import Iterable

from sparklog.clock import Clock, iso
from sparklog.diskless.names import QUARANTINE
from sparklog.tiered.object_store.store import Store


class Quarantine:
    """The quarantine of a repair. Not thread-safe."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self.prefix = f"{QUARANTINE}{re.sub(r'[^0-9TZ]', '', iso(clock()))}/"
        self._kept: set[str] = set()

    def keep(self, name: str) -> str | None:
        """Copy an object; return the name of the copy, or None if there is no such object."""
        if name not in self._kept:
            try:
                self._store.copy(self._store, name, self.prefix + name)
            except FileNotFoundError:
                return None
            self._kept.add(name)
        return self.prefix + name

    def remove(self, names: Iterable[str]) -> list[str]:
        """Move objects to the quarantine; return the names of the objects that existed."""
        kept = [name for name in names if self.keep(name) is not None]
        if kept:
            self._store.delete(kept)
        return kept
