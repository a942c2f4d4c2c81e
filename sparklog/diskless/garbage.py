"""Garbage collection of a log in a bucket: deletes objects that will never be needed again.

Only the ledger decides which objects are garbage, never a clock: an entry removes them from the log
first, then they are deleted. `delete_delay_ms` is a courtesy to readers that still use an older
plan; a reader that does not find an object folds the new entries and plans again.

    replaced   sources of a merge, once the segments that cover their offsets *now* have manifests,
               so that readers of manifests alone (an archive) never lose records
    expired    extents below a log start, or of a deleted topic that was purged by an entry after
               the topic's file.delete.delay.ms, by the store's own times
    past       segments of past terms that the state doesn't contain: a service crashed before its
               entry, or before it deleted them. The state includes the entry of our own term, so
               no entry of a past term can follow. Recently removed segments wait for the delay
    staged     objects that an extent referred to in the past but not now; or never, and below the
               stage floor, so that they can't be committed any more
    inline     data in entries that no extent refers to: the entry is overwritten by its own first
               bytes. The object remains, because a delayed request could create a free number
    state, position, upload, trial: outdated objects, and unfinished uploads

Every sweep looks for all of these, because a delayed request can bring an object back. A sweep that
can't find anything is omitted, except once per `stage_retention_ms` (`Garbage.is_due`).
Thread-safe; every method can be interrupted anywhere and repeated.
"""

import bisect
import contextlib
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sparklog.common import TopicPartition
from sparklog.diskless.entries import FloorRecord
from sparklog.diskless.extent_tables import read_head
from sparklog.diskless.extents import Extent, Extents
from sparklog.diskless.lease import TermLease
from sparklog.diskless.merging import Merger
from sparklog.diskless.names import (
    READERS,
    TRIAL,
    entry_name,
    ledger_prefix,
    parse_position,
    parse_staged,
    parse_state,
    service_name,
    staged_prefix,
    state_prefix,
    term_of,
)
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.segment_healing import SegmentHealer
from sparklog.diskless.service_log import ConflictError, NewEntry, ServiceLog
from sparklog.diskless.state import DisklessState, partitions_of, term_lost
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.ledger_records import PurgeRecord
from sparklog.storage.round_report import Report, Swept
from sparklog.storage.segment_store import SourceChangedError
from sparklog.tiered.layout.object_names import Directory, manifest_name, parse_log, parse_manifest
from sparklog.tiered.object_store.store import StoredObject

STATES_KEPT: Final = 2  # the older state is read if the newest is damaged
_DELETED_MAX: Final = 1000
_CUT_MAX: Final = 10_000
PAGE_OBJECTS: Final = 1000  # objects that a list request returns
_NEVER_MS: Final = 1 << 62
_NOTED_MAX: Final = 1000  # scheduled deletions in a heartbeat, about 40 bytes each
_TERMS_MAX: Final = 2**32  # a service can't have a term so far ahead: terms grow by 1


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Extents that an entry removed from the log, and whose objects wait for their deletion.

    Attributes:
        due_ms: The time from which the objects are deleted.
        key: The topic and partition.
        topic_id: The id of the topic.
        gone: The removed extents, in offset order.
        kind: Why they were removed; see `Swept`.
    """

    due_ms: float
    key: TopicPartition
    topic_id: str
    gone: Extents
    kind: str


class Garbage:
    """Deletes the garbage of a log, for the service with the log's term."""

    def __init__(
        self,
        log: ServiceLog,
        lease: TermLease,
        merger: Merger,
        options: UpkeepOptions,
        healer: SegmentHealer | None = None,
    ) -> None:
        """`healer`: rewrites missing segments before their sources are deleted."""
        self._healer = healer
        self._log, self._lease, self._merger, self._options = log, lease, merger, options
        self._turn = threading.Lock()  # locked while working: one method at a time
        self._lock = threading.Lock()  # protects the following attributes
        self._todo: list[_Waiting] = []
        self._named: set[str] = set()  # objects that an extent has ever referred to
        self._unnamed_ms: dict[str, int] = {}  # since when no extent refers to the object
        self._idle_ms: dict[int, int] = {}  # since when no extent refers to the inline data
        self._cut: set[int] = set()  # entries above `cut_below` without data
        self._tables: dict[str, frozenset[str]] = {}
        self._swept: tuple[int, int] | None = None  # (entry, ms) of a sweep that left no garbage
        self._states_at = -1  # the newest entry when older states were last deleted

    # --- scheduled deletions ------------------------------------------------------------------

    def schedule_deletion(
        self,
        key: TopicPartition,
        topic_id: str,
        gone: Extents,
        *,
        kind: str,
        now_ms: int,
        made: Iterable[str] = (),
    ) -> None:
        """Schedule the deletion of extents that an entry of this process removed from the log.

        Args:
            key: The topic and partition.
            topic_id: The id of the topic.
            gone: The removed extents, in offset order.
            kind: Why they were removed; see `Swept`.
            now_ms: The present time, at which the delay begins.
            made: The objects that replace the extents' objects.
        """
        names = {name for extent in gone for name in self.objects_of(extent)}
        with self._lock:
            self._named |= names | set(made)
            due = now_ms + self._options.delete_delay_ms
            self._todo.append(_Waiting(due, key, topic_id, gone, kind))
            notes = self._lease.notes
            segments = [extent for extent in gone if extent.segment]
            scheduled = notes.let_go | dict.fromkeys(
                (removed.segment for removed in segments), now_ms
            )
            # The limit bounds the size of the heartbeat. A later service deletes segments that are
            # not listed without waiting for the delay.
            notes.let_go = dict(list(scheduled.items())[-_NOTED_MAX:])
            sizes = {removed.segment: (key.topic, removed.size) for removed in segments}
            notes.let_go_bytes = _of(notes.let_go, notes.let_go_bytes | sizes)

    @property
    def next_ms(self) -> float:
        """When the next scheduled deletion is due."""
        with self._lock:
            return min((waiting.due_ms for waiting in self._todo), default=float("inf"))

    def tidy(self, report: Report) -> None:
        """Delete segments that were replaced or expired, once their delay has passed.

        Before that, write any missing manifests of the segments that now cover their offsets.
        `sweep` deletes staged objects, and `cut` removes inline data.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses the request.
            LeaseLostError: Another process has taken over the lease.
        """
        with self._turn:
            with self._lock:
                due = [waiting for waiting in self._todo if waiting.due_ms <= report.time_ms]
            if not due:
                return
            state, looked = self._log.follow(), dict[str, bool]()
            live = self.live(state)
            for waiting in due:
                segments = [e for e in waiting.gone if e.segment and e.object not in live]
                if segments and not report.dry_run:
                    topic = state.log.topics.get(waiting.key.topic)
                    span = waiting.key, waiting.gone[0].base, waiting.gone[-1].end
                    is_same = topic is not None and topic.id == waiting.topic_id
                    if is_same and not self._is_kept_elsewhere(state, [span], looked, report):
                        continue
                    self.write_missing_manifests(state, waiting)
                self._delete_segments(segments, waiting, report)
                if not report.dry_run:
                    with self._lock:
                        self._todo.remove(waiting)
                        self._forget({extent.segment for extent in waiting.gone})

    def _forget(self, segments: Set[str]) -> None:
        notes = self._lease.notes
        notes.let_go = {name: at for name, at in notes.let_go.items() if name not in segments}
        notes.let_go_bytes = _of(notes.let_go, notes.let_go_bytes)

    def _is_kept_elsewhere(
        self,
        state: DisklessState,
        spans: Iterable[tuple[TopicPartition, int, int]],
        looked: dict[str, bool],
        report: Report,
    ) -> bool:
        """Return True if the segments that contain these offsets now exist in full length.

        Their sources may be the last good copy, so they are not deleted before. A segment that is
        missing or too short is rewritten from them, if possible.
        Cost: a request per segment that is not in `looked`.

        Args:
            spans: (partition, first offset, end offset).
            looked: Results by object, for a single sweep.
        """
        for key, first, end in spans:
            extents = state.extents.get(key, ())
            at = max(0, bisect.bisect_right(extents, first, key=_base) - 1)
            for extent in extents[at : bisect.bisect_left(extents, end, key=_base)]:
                if not extent.segment or extent.end <= first:
                    continue
                if extent.object not in looked:
                    looked[extent.object] = not self._is_short(extent)
                    if not looked[extent.object]:
                        self._restore(key, extent, report)
                if not looked[extent.object]:
                    return False
        return True

    def _restore(self, key: TopicPartition, extent: Extent, report: Report) -> None:
        """Rewrite a missing segment from its sources, or report that the sources are kept."""
        if self._healer is not None and self._healer.tried(key, extent, report):
            return
        report.errors.append(
            f"{key}: {self._log.store.url}/{extent.object} is missing or too short, so the objects "
            "that the segment was merged from are kept"
        )

    def write_missing_manifests(self, state: DisklessState, one: _Waiting) -> None:
        """Write the missing manifests of segments that now cover the offsets of removed extents.

        `one` has the removed extents, whose objects are about to be deleted.
        """
        topic = state.log.topics.get(one.key.topic)
        if topic is None or topic.id != one.topic_id:
            return
        first, end = one.gone[0].base, one.gone[-1].end
        covering = [
            extent
            for extent in state.extents.get(one.key, ())
            if extent.segment and extent.base < end and first < extent.end
        ]
        if all(extent.segment in self._merger.manifested for extent in covering):
            return
        made = _manifest_ids(self._log.store.list(Directory(*one.key, one.topic_id).prefix))
        for extent in covering:
            if extent.segment not in made | self._merger.manifested:
                self._merger.make_manifest(one.key, extent, state)

    def _delete_segments(self, segments: list[Extent], one: _Waiting, report: Report) -> None:
        prefix = Directory(*one.key, one.topic_id).prefix
        deletable: list[StoredObject] = []
        for e in segments:
            manifest = manifest_name(e.base, e.segment, e.end, e.max_timestamp)
            deletable += [StoredObject(prefix + manifest, 0, 0), StoredObject(e.object, e.size, 0)]
        self._delete(deletable, report, one.kind)

    # --- sweeps --------------------------------------------------------------------------------

    def is_due(self, report: Report) -> bool:
        """Return True if a sweep may find anything, as far as this process knows.

        Only an entry turns objects into garbage. So there is no garbage if no entry was created
        since a sweep that deleted everything, unless a delayed request brought an object back. For
        this case a sweep is also due once per `stage_retention_ms`.
        """
        if report.dry_run or self._swept is None:
            return True
        number, at_ms = self._swept
        is_old = not 0 <= report.time_ms - at_ms < self._options.stage_retention_ms
        return is_old or number != self._log.state.number or bool(self._lease.notes.let_go)

    def sweep(self, report: Report) -> None:
        """Examine all objects of the log: write missing manifests, delete garbage.

        Cost: see `_listed`; a list request for unfinished uploads.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses the request.
            LeaseLostError: Another process has taken over the lease.
        """
        with self._turn:
            own = self._lease.term  # read before the state, which then includes this term's entry
            if not own and not report.dry_run:
                raise LeaseLostError(f"{self._log.store.url}: this service does not hold the lease")
            errors = len(report.errors)
            # An interrupted sweep must not count as complete.
            if not report.dry_run:
                self._swept = None
            state = self._log.follow()
            listed, others = self._listed(state)
            staged = [
                stored for stored in others if stored.name.startswith(staged_prefix(state.log_id))
            ]
            state = self._log.follow()  # after listing: new entries may refer to listed objects
            live = self.live(state)
            with self._lock:
                self._named |= live
            if self._heal(state, listed, report):
                state = self._log.follow()
                live |= self.live(state)
                with self._lock:
                    self._named |= live
            self._make_manifests(state, listed, report)
            let_go = self._let_go(live, [*staged, *itertools.chain(*listed.values())], report)
            # A dry run without a lease reports the work of the next service.
            self._sweep_segments(state, own or state.term + 1, let_go, listed, report)
            orphans = self._sweep_staged(state, live, let_go, staged, report)
            self._sweep_positions(others, report)
            self._sweep_trials(others, report)
            self._sweep_uploads(report)
            with self._lock:
                waiting = self._unnamed_ms.keys() - let_go
            if not (report.dry_run or orphans or waiting or len(report.errors) > errors):
                self._swept = state.number, report.time_ms

    def _listed(
        self, state: DisklessState
    ) -> tuple[dict[Directory, list[StoredObject]], list[StoredObject]]:
        """List all objects except the ledger: by partition directory, and the others.

        Cost: a list request per 1,000 objects and two more. If the store can't skip the ledger in a
            listing, each directory is listed separately when the ledger would take more requests.
        """
        store, directories = self._log.store, list(_directories(state))
        if store.skips or state.number < PAGE_OBJECTS * len(directories):
            listed: dict[Directory, list[StoredObject]] = {each: [] for each in directories}
            by_prefix = {each.prefix: listed[each] for each in directories}
            others: list[StoredObject] = []
            for stored in store.list(without=ledger_prefix(state.log_id)):
                top, slash, _ = stored.name.partition("/")
                by_prefix.get(top + slash, others).append(stored)
            return listed, others
        prefixes = (staged_prefix(state.log_id), READERS, TRIAL)
        listed = {each: store.list(each.prefix) for each in directories}
        return listed, [stored for prefix in prefixes for stored in store.list(prefix)]

    def _heal(
        self,
        state: DisklessState,
        listed: dict[Directory, list[StoredObject]],
        report: Report,
    ) -> bool:
        """Rewrite segments with missing or truncated objects.

        Return True if any was rewritten.

        Sweeps delete the sources of segments, so this has to come before that in each sweep.
        """
        if self._healer is None or report.dry_run:
            return False
        healed = False
        for key in partitions_of(state):
            objects = listed.get(Directory(*key, state.log.topics[key.topic].id))
            sizes = {each.name: each.size for each in objects or ()}
            for extent in state.extents.get(key, ()):
                is_short = extent.segment and sizes.get(extent.object, -1) < extent.size
                if objects is not None and is_short and self._is_short(extent):
                    healed |= self._healer.tried(key, extent, report)
        return healed

    def _is_short(self, extent: Extent) -> bool:
        """Check the object itself, because a listing may be outdated."""
        try:
            return self._log.store.size(extent.object) < extent.size
        except FileNotFoundError:
            return True

    def _make_manifests(
        self,
        state: DisklessState,
        listed: dict[Directory, list[StoredObject]],
        report: Report,
    ) -> None:
        for key in partitions_of(state):
            directory = Directory(*key, state.log.topics[key.topic].id)
            made = _manifest_ids(listed.get(directory, ()))
            for extent in state.extents.get(key, ()):
                if extent.segment and extent.segment not in made and directory in listed:
                    if not report.dry_run and not self._manifest_made(key, extent, state, report):
                        continue
                    report.made_manifests += 1

    def _manifest_made(
        self, key: TopicPartition, extent: Extent, state: DisklessState, report: Report
    ) -> bool:
        """Write a segment's missing manifest; return False after a failure, which is reported."""
        try:
            self._merger.make_manifest(key, extent, state)
        except (SourceChangedError, DataCorruptionError, InvalidRequestError) as error:
            report.errors.append(f"{key}: a manifest can't be written: {error}")
            return False
        return True

    def _let_go(self, live: set[str], listed: list[StoredObject], report: Report) -> set[str]:
        """Return the objects that extents referred to in the past, but not for the deletion delay.

        The delay is the option `delete_delay_ms`.
        """
        with self._lock:
            since = {
                each.name: self._unnamed_ms.get(each.name, report.time_ms)
                for each in listed
                if each.name in self._named and each.name not in live
            }
            if not report.dry_run:
                self._unnamed_ms = since
                self._named &= live | {each.name for each in listed}
        delay_ms = self._options.delete_delay_ms
        return {name for name, at in since.items() if report.time_ms - at >= delay_ms}

    def waiting_ms(self, now_ms: int) -> float:
        """When the next deletion that past services noted is due; inf if there is none."""
        with self._lock:
            own = {extent.segment for waiting in self._todo for extent in waiting.gone}
            others = [at for name, at in self._lease.notes.let_go.items() if name not in own]
        due = (min(at, now_ms) + self._options.delete_delay_ms for at in others)
        return min((at for at in due if at > now_ms), default=float("inf"))

    def _noted(
        self, listed: dict[Directory, list[StoredObject]], named: set[str], report: Report
    ) -> dict[str, bool]:
        """Return {segment id: whether the delay has passed} for deletions that services noted.

        The notes are those in the heartbeat of the lease (`ServiceNotes.let_go`). A noted time in
        the future comes from another clock and counts as now, so no segment waits longer than the
        delay, counted from when this process first sees the note.

        Args:
            listed: The objects in each partition's directory.
            named: The ids of the segments in the state, which are not deleted.
            report: The report of the round, with the present time.
        """
        left = {_segment_of(each) for objects in listed.values() for each in objects} - named
        notes, now_ms = self._lease.known_notes(), report.time_ms
        with self._lock:
            noted = {s: min(at, now_ms) for s, at in notes.let_go.items() if s in left}
            if not report.dry_run:
                notes.let_go, notes.let_go_bytes = noted, _of(noted, notes.let_go_bytes)
        delay_ms = self._options.delete_delay_ms
        return {segment: now_ms - at >= delay_ms for segment, at in noted.items()}

    def _sweep_segments(
        self,
        state: DisklessState,
        own: int,
        let_go: set[str],
        listed: dict[Directory, list[StoredObject]],
        report: Report,
    ) -> None:
        """Delete removed segments, and segments of past terms that the state doesn't contain.

        A segment whose removal a service has noted in the heartbeat is deleted after the delay,
        whatever its term. Segment ids are unique, so an entry never refers again to a segment that
        an earlier entry removed.

        Args:
            state: The log's state, folded after the objects were listed.
            own: The term of this service. Segments of lower terms are past.
            let_go: Objects that extents referred to in the past, and whose delay has passed.
            listed: The objects in each partition's directory.
            report: The report to which the deleted objects are added.
        """
        named = {e.segment for extents in state.kept_extents() for e in extents if e.segment}
        noted = self._noted(listed, named, report)
        past: list[StoredObject] = []
        expired: list[StoredObject] = []
        for objects in listed.values():
            removed = {_segment_of(each) for each in objects if each.name in let_go}
            for each in objects:
                segment = _segment_of(each)
                if not segment or segment in named or not noted.get(segment, True):
                    continue
                if segment in noted:
                    expired.append(each)
                elif is_past(segment, own):
                    past.append(each)
                elif segment in removed:
                    expired.append(each)
        self._delete(past, report, "past")
        self._delete(expired, report, "expired")
        if not report.dry_run:
            with self._lock:
                self._forget({_segment_of(each) for each in (*past, *expired)})

    def _sweep_staged(
        self,
        state: DisklessState,
        live: set[str],
        let_go: set[str],
        staged: list[StoredObject],
        report: Report,
    ) -> bool:
        """Delete staged objects that no commit can refer to any more.

        Args:
            state: The log's state.
            live: The objects that extents refer to.
            let_go: Objects that extents referred to in the past, and whose delay has passed.
            staged: The staged objects in the store.
            report: The report to which the deleted objects are added.

        Returns:
            True if other staged objects would become garbage by a higher stage floor: objects whose
            staging began before that entry can't be committed any more.
        """
        deletable: list[StoredObject] = []
        orphans = False
        for each in staged:
            number = parse_staged(self._log.log_id, each.name)
            if number is None or each.name in live:
                continue
            if number < state.floor or each.name in let_go:
                deletable.append(each)
            else:
                orphans |= number < state.number
        self._delete(deletable, report, "staged")
        return orphans

    def _sweep_positions(self, listed: Iterable[StoredObject], report: Report) -> None:
        """Delete a group's positions except the highest two, of which the lower is a fallback."""
        by_group: dict[str, list[tuple[int, StoredObject]]] = {}
        for each in listed:
            parsed = parse_position(each.name)
            if parsed is not None:
                by_group.setdefault(parsed[0], []).append((parsed[1], each))
        lower = [
            each
            for positions in by_group.values()
            for _, each in sorted(positions, key=lambda one: one[0])[:-2]
        ]
        self._delete(lower, report, "position")

    def _sweep_trials(self, listed: Iterable[StoredObject], report: Report) -> None:
        """Delete objects of a capability check that was interrupted."""
        before_ms = report.time_ms - self._options.stage_retention_ms
        left = [e for e in listed if e.name.startswith(TRIAL) and e.time_ms <= before_ms]
        self._delete(left, report, "trial")

    def _sweep_uploads(self, report: Report) -> None:
        if report.dry_run:
            return
        before_ms = report.time_ms - self._options.stage_retention_ms
        left = self._log.store.sweep_uploads(before_ms)
        if left:
            report.swept.append(Swept(kind="upload", objects=left, bytes=0))

    def purge(self, report: Report) -> None:
        """Delete all garbage immediately, without the usual delay, for an erasure.

        Readers with an older plan have to plan again sooner.
        Cost: two sweeps.
        Raises the errors of `sweep`.
        """
        later = replace(report, time_ms=report.time_ms + self._options.delete_delay_ms + 1)
        self.tidy(replace(report, time_ms=_NEVER_MS))
        self.sweep(report)  # finds unreferenced objects; the next sweep deletes them
        self.sweep(later)
        self.cut(report)

    # --- entries, states, the stage floor ------------------------------------------------------

    def cut(self, report: Report, *, delay_ms: int = 0) -> None:
        """Remove inline data that no extent refers to from their entries.

        Cost: a GET per entry in its lifetime, 64 concurrently and 10,000 per call; a PUT per entry
            with data.

        Args:
            delay_ms: How long this process must have known that no extent refers to the data.
        """
        with self._turn:
            state = self._log.follow()
            notes, inline = self._lease.notes, state.names_by_entry()
            objects = size = 0
            numbers = [
                n
                for n in range(notes.cut_below, state.next_number)
                if n not in inline and n not in self._cut
            ][:_CUT_MAX]
            since = {n: self._idle_ms.get(n, report.time_ms) for n in numbers}
            if not report.dry_run:
                self._idle_ms = since
            due = [n for n, at in since.items() if report.time_ms - at >= delay_ms]
            for number, cut_bytes in self._cut_some(state, due, report):
                objects, size = objects + (cut_bytes > 0), size + cut_bytes
                if not report.dry_run:
                    self._cut.add(number)
            if objects:
                report.swept.append(Swept(kind="inline", objects=objects, bytes=size))
            # Later services begin at `cut_below`, so each entry is read for this only once.
            below = notes.cut_below
            while below in self._cut:
                self._cut.remove(below)
                below += 1
            notes.cut_below = below

    def _cut_some(
        self, state: DisklessState, numbers: list[int], report: Report
    ) -> Iterator[tuple[int, int]]:
        """Remove the inline data of entries, unless they are the last good copy of a segment.

        Yields:
            (number, bytes removed) for each entry without inline data now; in a dry run, for each
            entry of which the data would be removed.
        """
        looked = dict[str, bool]()
        for stored in self._log.stored_entries(numbers):
            size = len(stored.data)
            if size and not report.dry_run:
                spans = [(key, each.base, each.end) for key, each in stored.entry.extents]
                if not self._is_kept_elsewhere(state, spans, looked, report):
                    continue
                self._lease.check()
                self._log.cut(stored)
            yield stored.number, size

    def raise_floor(self, report: Report) -> None:
        """Raise the stage floor to the newest entry that is `stage_retention_ms` old.

        Ages are by the store's own times: of the entry's object, and of the heartbeat, which is
        written to learn the current time.
        Cost: a PUT, and a list request per bisection step.

        Raises:
            LeaseLostError: Another process has taken over the lease.
            StorageUnavailableError: The store does not answer, or refuses the request.
        """
        with self._turn:
            state, term = self._log.follow(), self._lease.term
            if not report.dry_run:
                self._lease.renew()
            # The store's time of the heartbeat that was just written is the present time.
            heartbeats = self._log.store.list(service_name(term or state.term))
            if not heartbeats or not state.number > state.floor:
                return
            before_ms = heartbeats[0].time_ms - self._options.stage_retention_ms
            floor = self._newest_before(state, before_ms)
            if floor <= state.floor:
                return
            if not report.dry_run:
                self._create_floor(floor, term)
            report.notes.append(
                f"objects that were staged before entry {floor} and not committed "
                f"{'would be' if report.dry_run else 'are'} given up"
            )

    def _newest_before(self, state: DisklessState, before_ms: int) -> int:
        """Return the newest entry that was created before a time.

        Cutting an entry overwrites the object, which then looks younger. The result can only be too
        low for this reason, which delays a deletion.
        """
        low, high = state.floor, state.number
        while low < high:
            middle = (low + high + 1) // 2
            stored = self._log.store.list(entry_name(self._log.log_id, middle))
            if stored and stored[0].time_ms <= before_ms:
                low = middle
            else:
                high = middle - 1
        return low

    def _create_floor(self, floor: int, term: int) -> None:
        def decide(now: DisklessState) -> NewEntry:
            if now.term != term:
                raise term_lost(now, term)
            if now.floor >= floor:
                raise ConflictError(f"another process has raised the stage floor to {now.floor}")
            return NewEntry(record=FloorRecord(term=term, floor=floor))

        try:
            self._log.create(decide)
        except ConflictError:
            return

    def give_up_topics(self, report: Report) -> None:
        """Purge deleted topics after their file.delete.delay.ms. A sweep deletes the objects.

        Ages are by the store's own times, as in `raise_floor`.
        Cost: no request unless deleted topics exist; then a PUT, and a list request per topic.

        Raises:
            LeaseLostError: Another process has taken over the lease.
            StorageUnavailableError: The store does not answer, or refuses the request.
        """
        if not self._log.state.deleted:
            return
        with self._turn:
            state, term = self._log.follow(), self._lease.term
            if not report.dry_run:
                self._lease.renew()
            heartbeats = self._log.store.list(service_name(term or state.term))
            due = [
                topic_id
                for topic_id in state.deleted
                if heartbeats and self._is_over(state, topic_id, heartbeats[0])
            ]
            if not due:
                return
            if not report.dry_run:
                self._create_purge(due, term)
            would = "would be" if report.dry_run else "is"
            report.notes += [
                f"topic {state.log.deleted[topic_id].name} (id {topic_id}), which was deleted, "
                f"{would} given up: "
                f"file.delete.delay.ms={state.log.deleted[topic_id].delay_ms} is over"
                for topic_id in due
            ]

    def _is_over(self, state: DisklessState, topic_id: str, sign: StoredObject) -> bool:
        name = entry_name(self._log.log_id, state.deleted[topic_id].number)
        entry = self._log.store.list(name)
        return bool(entry) and (
            sign.time_ms - entry[0].time_ms >= state.log.deleted[topic_id].delay_ms
        )

    def _create_purge(self, ids: Sequence[str], term: int) -> None:
        def decide(now: DisklessState) -> NewEntry:
            if now.term != term:
                raise term_lost(now, term)
            left = tuple(topic_id for topic_id in ids if topic_id in now.deleted)
            if not left:
                raise ConflictError("the deleted topics were already restored or purged")
            return NewEntry(record=PurgeRecord(ids=left))

        with contextlib.suppress(ConflictError):
            self._log.create(decide)

    def states(self, report: Report) -> None:
        """Delete all state objects except the newest two.

        Cost: a list request if an entry was created.
        """
        with self._turn:
            number = self._log.state.number
            if number == self._states_at:
                return
            listed = self._log.store.list(state_prefix(self._log.log_id))
            states = [
                stored
                for stored in listed
                if parse_state(self._log.log_id, stored.name) is not None
            ]
            self._delete(states[:-STATES_KEPT], report, "state")  # sorted by number, as their names
            if not report.dry_run:
                self._states_at = number

    # --- helpers -------------------------------------------------------------------------------

    def live(self, state: DisklessState) -> set[str]:
        """Return all objects that extents refer to, directly or by an extent table."""
        named = {e for extents in state.kept_extents() for e in extents if e.pieces}
        return state.live_objects() | {name for e in named for name in self.objects_of(e)}

    def objects_of(self, extent: Extent) -> frozenset[str]:
        """Return the object of an extent; for an extent table, all objects in the table as well."""
        if not extent.pieces:
            return frozenset({extent.object})
        known = self._tables.get(extent.object)
        if known is None:
            get = partial(self._log.store.get, extent.object)
            path = f"{self._log.store.url}/{extent.object}"
            try:
                head = read_head(get, path=path)
            except FileNotFoundError as error:
                raise DataCorruptionError(
                    "the extent table is missing, so no garbage is deleted; restore the object "
                    "from a copy of the bucket",
                    path=path, first=extent.base, end=extent.end,
                ) from error  # fmt: skip
            known = self._tables[extent.object] = frozenset({extent.object, *head.names})
        return known

    def _delete(self, gone: Iterable[StoredObject], report: Report, kind: str) -> None:
        """Delete objects, manifests before logs. A dry run only reports the objects."""
        deletable = list(gone)
        if not deletable:
            return
        manifests = [
            each.name for each in deletable if parse_manifest(_last(each.name)) is not None
        ]
        others = [each.name for each in deletable if parse_manifest(_last(each.name)) is None]
        for names in (manifests, others):
            for at in range(0, len(names) if not report.dry_run else 0, _DELETED_MAX):
                # Stops the work soon after another service has begun. Deleting would still be
                # correct, because garbage never becomes live again.
                self._lease.check()
                self._log.store.delete(names[at : at + _DELETED_MAX])
        size = sum(each.size for each in deletable)
        report.swept.append(Swept(kind=kind, objects=len(deletable), bytes=size))


def _directories(state: DisklessState) -> Iterator[Directory]:
    """Yield directories that may contain segments: of all topics that the log has or had."""
    for key in partitions_of(state):
        yield Directory(*key, state.log.topics[key.topic].id)
    for topic_id, held in sorted(state.log.deleted.items()):
        for partition in sorted(held.ends):
            yield Directory(held.name, partition, topic_id)
    for topic_id, (name, partitions) in sorted(state.former.items()):
        for partition in range(partitions):
            yield Directory(name, partition, topic_id)


def is_past(segment_id: str, own: int) -> bool:
    """Return True if a segment has a term before `own`, or was not made by this log.

    Segments of the second kind come from a fork or an import.
    """
    term = term_of(segment_id)
    return term < own or term > own + _TERMS_MAX


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _of(
    let_go: Mapping[str, int], sizes: Mapping[str, tuple[str, int]]
) -> dict[str, tuple[str, int]]:
    return {name: sizes[name] for name in let_go if name in sizes}


def _segment_of(each: StoredObject) -> str:
    """Return the id of the segment that an object belongs to; "" for other objects."""
    log, manifest = parse_log(_last(each.name)), parse_manifest(_last(each.name))
    if manifest is not None:
        return manifest.id
    return "" if log is None else log[1]


def _manifest_ids(listed: Iterable[StoredObject]) -> set[str]:
    return {found.id for each in listed if (found := parse_manifest(_last(each.name))) is not None}


def _base(extent: Extent) -> int:
    return extent.base
