"""Repairs objects of a log in a bucket, after copying them to `quarantine/`."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.diskless.extents import Extent
from sparklog.diskless.home import DisklessHome, open_log
from sparklog.diskless.home_object import known_home, repair_home
from sparklog.diskless.ledger_repair import give_up_lost_entries
from sparklog.diskless.quarantine import Quarantine
from sparklog.diskless.segment_healing import SegmentHealer
from sparklog.diskless.service_log import ConflictError, ServiceLog
from sparklog.diskless.state_objects import write_state
from sparklog.errors import SparklogError
from sparklog.log.log import home_of
from sparklog.service.verification.findings import Finding, FixKind
from sparklog.storage.lease import LeaseLostError
from sparklog.tiered.layout.topic_owners import owner_bytes
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.options import RemoteOptions


class StoreRepair:
    """A repair of a log in a bucket. `done` has the changes, in order. Not thread-safe."""

    def __init__(
        self, store: Store, clock: Clock, findings: Sequence[Finding], options: RemoteOptions
    ) -> None:
        """Create a repair. `options` has the keyring of encrypted records."""
        self._store, self._clock, self._options = store, clock, options
        self._findings = findings
        self._quarantine = Quarantine(store, clock)
        self.done: list[str] = []

    def run(self) -> str | None:
        """Carry out all possible repairs. Return why some were refused, or None.

        Raises:
            StorageUnavailableError: The store does not answer. The repair may be incomplete; call
                this method again.
        """
        try:
            for kind, repair in _REPAIRS.items():
                for finding in self._wanting(kind):
                    repair(self, finding)
            refused = self._repair_open_log()
        except SparklogError as error:
            return str(error)
        return "; ".join(refused) or None

    def _wanting(self, kind: FixKind) -> list[Finding]:
        """Return the findings that need this kind of fix, only one for each object."""
        files = {f.file: f for f in self._findings if f.fix and f.fix.kind is kind}
        return list(files.values())

    def _name(self, finding: Finding) -> str:
        return finding.file.removeprefix(f"{self._store.url}/")

    def _home(self, finding: Finding) -> None:
        self.done.append(repair_home(self._store, self._clock, self._quarantine))

    def _ledger(self, finding: Finding) -> None:
        log_id = known_home(self._store).log_id
        self.done += give_up_lost_entries(self._store, log_id, self._clock, self._quarantine)

    def _owner(self, finding: Finding) -> None:
        """Write a topic's owner object again, so that no log dir's service copies the topic."""
        name = self._name(finding)
        kept = self._quarantine.keep(name)
        log_id = known_home(self._store).log_id
        self._store.put(name, owner_bytes(log_id, self._store.url, self._clock()))
        self._note_written(finding, kept)

    def _note_written(self, finding: Finding, kept: str | None) -> None:
        former = "" if kept is None else f"; the former one is {kept}"
        self.done.append(f"{finding.file} written again{former}")

    def _position(self, finding: Finding) -> None:
        """Move a group's damaged position to quarantine; the older position takes effect."""
        self._move_aside(
            finding,
            "; lost: the group's last commit, so that it continues at its position before",
        )

    def _move_aside(self, finding: Finding, consequence: str = "") -> None:
        for name in self._quarantine.remove([self._name(finding)]):
            self.done.append(
                f"{self._store.url}/{name} moved to {self._quarantine.prefix}{name}{consequence}"
            )

    # --- repairs that open the log for writing ---------------------------------------------------

    def _repair_open_log(self) -> list[str]:
        """Open the log for writing and carry out these repairs. Return why some were refused.

        Raises: the errors of opening the log for writing.
        """
        refused: list[str] = []
        wanted = [(kind, finding) for kind in _OPEN_REPAIRS for finding in self._wanting(kind)]
        if not wanted:
            return refused
        with self._opened() as (log, healer):
            for kind, finding in wanted:
                try:
                    _OPEN_REPAIRS[kind](self, log, healer, finding)
                except (ConflictError, LeaseLostError):
                    refused.append(f"{finding.file}: it is being merged; run the repair again")
                except SparklogError as error:
                    refused.append(str(error))
        return refused

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[ServiceLog, SegmentHealer]]:
        log = open_log(
            self._store.url, mode="rw", remote=self._options, clock=self._clock,
            store=self._store, background=False,
        )  # fmt: skip
        try:
            home = home_of(log)
            assert isinstance(home, DisklessHome)
            opened = ServiceLog(home.commits)
            yield opened, SegmentHealer(opened, home.objects.keys)
        finally:
            log.close()

    def _state(self, log: ServiceLog, healer: SegmentHealer, finding: Finding) -> None:
        """Move a state object that differs from the ledger's state to quarantine."""
        self._move_aside(finding)
        write_state(self._store, log.follow())

    def _segment(self, log: ServiceLog, healer: SegmentHealer, finding: Finding) -> None:
        for key, extent in _extent_of(log, finding):
            merged = healer.heal(key, extent)
            names = ", ".join(str(segment.id) for segment in merged.segments)
            self.done.append(
                f"{finding.file}: offsets [{extent.base}, {extent.end}) of {key} written again, "
                f"from the objects that it was merged from (segment {names})"
            )

    def _manifest(self, log: ServiceLog, healer: SegmentHealer, finding: Finding) -> None:
        for key, extent in _extent_of(log, finding):
            kept = self._quarantine.keep(self._name(finding))
            healer.make_manifest(key, extent)
            self._note_written(finding, kept)


def _extent_of(log: ServiceLog, finding: Finding) -> Iterator[tuple[TopicPartition, Extent]]:
    """Yield the segment of a finding if the log still has that segment."""
    assert finding.topic is not None
    assert finding.partition is not None
    assert finding.fix is not None
    key = TopicPartition(finding.topic, finding.partition)
    for extent in log.follow().extents.get(key, ()):
        if extent.segment and extent.base == finding.fix.offset and extent.segment in finding.file:
            yield key, extent


_REPAIRS: Final[dict[FixKind, Callable[[StoreRepair, Finding], None]]] = {
    FixKind.HOME: StoreRepair._home,
    FixKind.LEDGER: StoreRepair._ledger,
    FixKind.OWNER: StoreRepair._owner,
    FixKind.POSITION: StoreRepair._position,
}
_OPEN_REPAIRS: Final[
    dict[FixKind, Callable[[StoreRepair, ServiceLog, SegmentHealer, Finding], None]]
] = {
    FixKind.SEGMENT: StoreRepair._segment,
    FixKind.MANIFEST: StoreRepair._manifest,
    FixKind.STATE: StoreRepair._state,
}
"""In this order: a repaired segment gets its manifest at the same time."""
