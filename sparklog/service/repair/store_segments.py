"""Repairs manifests, damaged segments and the newest state of a log in a bucket."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.diskless.extents import Extent
from sparklog.diskless.home import DisklessHome, open_log
from sparklog.diskless.quarantine import Quarantine
from sparklog.diskless.segment_healing import SegmentHealer
from sparklog.diskless.service_log import ConflictError, ServiceLog
from sparklog.diskless.state_objects import write_state
from sparklog.errors import SparklogError
from sparklog.log.log import home_of
from sparklog.service.verification.findings import Finding, FixKind
from sparklog.storage.lease import LeaseLostError
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.options import RemoteOptions


class SegmentRepair:
    """Opens the log for writing and carries out fixes. `done`: the changes."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        options: RemoteOptions,
        quarantine: Quarantine,
        done: list[str],
    ) -> None:
        self._store, self._clock, self._options = store, clock, options
        self._quarantine, self.done = quarantine, done

    def run(self, findings: list[Finding]) -> list[str]:
        """Carry out the fixes of findings. Return why some were refused.

        Raises: the errors of opening the log for writing.
        """
        refused: list[str] = []
        wanted = [one for one in findings if one.fix is not None and one.fix.kind in REPAIRS]
        if not wanted:
            return refused
        with self._opened() as (log, healer):
            for finding in sorted(wanted, key=_order):
                assert finding.fix is not None
                try:
                    _CARRY_OUT[finding.fix.kind](self, log, healer, finding)
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
        name = finding.file.removeprefix(f"{self._store.url}/")
        for each in self._quarantine.remove([name]):
            self.done.append(f"{self._store.url}/{each} moved to {self._quarantine.prefix}{each}")
        write_state(self._store, log.follow())

    def _segment(self, log: ServiceLog, healer: SegmentHealer, finding: Finding) -> None:
        for key, extent in _extent_of(log, finding):
            merged = healer.heal(key, extent)
            names = ", ".join(str(one.id) for one in merged.segments)
            self.done.append(
                f"{finding.file}: offsets [{extent.base}, {extent.end}) of {key} written again, "
                f"from the objects that it was merged from (segment {names})"
            )

    def _manifest(self, log: ServiceLog, healer: SegmentHealer, finding: Finding) -> None:
        for key, extent in _extent_of(log, finding):
            name = finding.file.removeprefix(f"{self._store.url}/")
            kept = self._quarantine.keep(name)
            healer.make_manifest(key, extent)
            former = "" if kept is None else f"; the former one is {kept}"
            self.done.append(f"{finding.file} written again{former}")


def _extent_of(log: ServiceLog, finding: Finding) -> Iterator[tuple[TopicPartition, Extent]]:
    """Yield the segment of a finding if the log still has that segment."""
    assert finding.topic is not None
    assert finding.partition is not None
    assert finding.fix is not None
    key = TopicPartition(finding.topic, finding.partition)
    for extent in log.follow().extents.get(key, ()):
        if extent.segment and extent.base == finding.fix.offset and extent.segment in finding.file:
            yield key, extent


_CARRY_OUT: Final[
    dict[FixKind, Callable[[SegmentRepair, ServiceLog, SegmentHealer, Finding], None]]
] = {
    FixKind.SEGMENT: SegmentRepair._segment,
    FixKind.MANIFEST: SegmentRepair._manifest,
    FixKind.STATE: SegmentRepair._state,
}
REPAIRS: Final = tuple(_CARRY_OUT)
"""Fixes of this module, in order: a repaired segment gets its manifest at the same time."""


def _order(finding: Finding) -> int:
    assert finding.fix is not None
    return REPAIRS.index(finding.fix.kind)
