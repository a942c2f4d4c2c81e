"""Repairs objects of a log in a bucket, after copying them to `quarantine/`."""

from collections.abc import Callable, Sequence
from typing import Final

from sparklog.clock import Clock
from sparklog.diskless.home_object import known_home, repair_home
from sparklog.diskless.ledger_repair import give_up_lost_entries
from sparklog.diskless.quarantine import Quarantine
from sparklog.errors import SparklogError
from sparklog.service.repair.store_segments import REPAIRS, SegmentRepair
from sparklog.service.verification.findings import Finding, FixKind
from sparklog.tiered.layout.topic_owners import owner_bytes
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.options import RemoteOptions


class StoreRepair:
    """A repair of a log in a bucket. `done`: the changes, in order. Not thread-safe."""

    def __init__(
        self, store: Store, clock: Clock, findings: Sequence[Finding], options: RemoteOptions
    ) -> None:
        """Create a repair. `options`: has the keyring of encrypted records."""
        self._store, self._clock, self._findings = store, clock, findings
        self._quarantine = Quarantine(store, clock)
        self.done: list[str] = []
        self._segments = SegmentRepair(store, clock, options, self._quarantine, self.done)

    def run(self) -> str | None:
        """Carry out all possible repairs. Return why some were refused, or None.

        Raises: StorageUnavailableError: the repair may be incomplete; call this again.
        """
        try:
            for kind, repair in _REPAIRS.items():
                for finding in self._wanting(kind):
                    repair(self, finding)
            refused = self._segments.run([f for kind in REPAIRS for f in self._wanting(kind)])
        except SparklogError as error:
            return str(error)
        return "; ".join(refused) or None

    def _wanting(self, kind: FixKind) -> list[Finding]:
        """Return the findings with this fix, a single finding per object."""
        files = {f.file: f for f in self._findings if f.fix and f.fix.kind is kind}
        return list(files.values())

    def _home(self, finding: Finding) -> None:
        self.done.append(repair_home(self._store, self._clock, self._quarantine))

    def _ledger(self, finding: Finding) -> None:
        log_id = known_home(self._store).log_id
        self.done += give_up_lost_entries(self._store, log_id, self._clock, self._quarantine)

    def _owner(self, finding: Finding) -> None:
        """Write a topic's owner object again, so that no log dir's service copies the topic."""
        name = finding.file.removeprefix(f"{self._store.url}/")
        kept = self._quarantine.keep(name)
        log_id = known_home(self._store).log_id
        self._store.put(name, owner_bytes(log_id, self._store.url, self._clock()))
        former = "" if kept is None else f"; the former one is {kept}"
        self.done.append(f"{finding.file} written again{former}")

    def _position(self, finding: Finding) -> None:
        """Move a group's damaged position to quarantine; the older position takes effect."""
        name = finding.file.removeprefix(f"{self._store.url}/")
        for each in self._quarantine.remove([name]):
            self.done.append(
                f"{self._store.url}/{each} moved to {self._quarantine.prefix}{each}; lost: the "
                "group's last commit, so that it continues at its position before"
            )


_REPAIRS: Final[dict[FixKind, Callable[[StoreRepair, Finding], None]]] = {
    FixKind.HOME: StoreRepair._home,
    FixKind.LEDGER: StoreRepair._ledger,
    FixKind.OWNER: StoreRepair._owner,
    FixKind.POSITION: StoreRepair._position,
}
