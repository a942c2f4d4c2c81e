"""Repairs a log in a store: objects that can be made again, after a copy to `quarantine/`."""

from collections.abc import Callable, Sequence
from typing import Final

from sparklog.clock import Clock
from sparklog.diskless.home_object import repair_home
from sparklog.diskless.quarantine import Quarantine
from sparklog.errors import SparklogError
from sparklog.service.verification.findings import Finding, FixKind
from sparklog.tiered.object_store.store import Store


class StoreRepair:
    """One repair. `done`: what was changed, in its order. Not thread-safe."""

    def __init__(self, store: Store, clock: Clock, findings: Sequence[Finding]) -> None:
        self._store, self._clock, self._findings = store, clock, findings
        self._quarantine = Quarantine(store, clock)
        self.done: list[str] = []

    def run(self) -> str | None:
        """Repair what can be repaired; return why a repair was refused, None if none was.

        Raises: StorageUnavailableError: a part may be done; call it again.
        """
        for kind, repair in _REPAIRS.items():
            files = {one.file: one for one in self._findings if one.fix and one.fix.kind is kind}
            try:
                for finding in files.values():
                    repair(self, finding)
            except SparklogError as error:
                return str(error)
        return None

    def _home(self, finding: Finding) -> None:
        self.done.append(repair_home(self._store, self._clock, self._quarantine))

    def _delete(self, finding: Finding) -> None:
        """Delete an object that readers do without, or that a service's round makes again."""
        name = finding.file.removeprefix(f"{self._store.url}/")
        for each in self._quarantine.remove([name]):
            self.done.append(f"{self._store.url}/{each} moved to {self._quarantine.prefix}{each}")


_REPAIRS: Final[dict[FixKind, Callable[[StoreRepair, Finding], None]]] = {
    FixKind.HOME: StoreRepair._home,
    FixKind.STATE: StoreRepair._delete,
    FixKind.MANIFEST: StoreRepair._delete,
}
