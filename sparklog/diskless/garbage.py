"""Garbage of a log in a store: what nobody names, and never will again, goes.

Which objects those are is a matter of the ledger alone, and never of a clock; first the entry that
lets go of them is there, then they go. `delete_delay_ms` is courtesy: readers that hold a plan
find the objects of it for a while, and where they don't they fold the news.

    replaced   sources of a merge, once the manifests are there of what covers their offsets *now*:
               who reads manifests alone never loses what it saw
    expired    what lies below a log start, or of a deleted topic that was given up: an entry, made
               when the topic's file.delete.delay.ms is over by the store's own times
    past       segments of past terms that the state doesn't name: a service died before its entry,
               or before it deleted. The state is at or after the own term's entry, so nothing of
               theirs can come any more. What the notes say was let go of only now waits its time
    staged     named once and by no extent now; or never, and below the stage floor: it can't be
               committed any more
    inline     data in entries that no extent lies in: the entry is put again as its own first
               bytes. It stays itself, for ever: a number that was free again could be created late
    state, position, upload, trial: older ones, and what was never finished

All of it is looked for in every sweep, for a request that comes late brings garbage back. A sweep
that can't find anything is left out, but for one per `stage_retention_ms` (`Garbage.is_due`).
Threads take turns; every method may be cut anywhere and done again.
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
from sparklog.diskless.entries import ENTRY_BYTES_MAX, FloorRecord, decode
from sparklog.diskless.extent_tables import read_head
from sparklog.diskless.extents import Extent, Extents
from sparklog.diskless.lease import TermLease
from sparklog.diskless.ledger import missing_entry
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
from sparklog.diskless.state import DisklessState, partitions_of
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.ledger_records import PurgeRecord
from sparklog.storage.round_report import Report, Swept
from sparklog.storage.segment_store import SourceChangedError
from sparklog.tiered.layout.object_names import Directory, manifest_name, parse_log, parse_manifest
from sparklog.tiered.object_store.store import StoredObject

STATES_KEPT: Final = 2
_DELETED_MAX: Final = 1000
_CUT_AT_ONCE: Final = 64
_CUT_MAX: Final = 10_000
_PAGE: Final = 1000  # objects that one list request returns
_NEVER_MS: Final = 1 << 62
_NOTED_MAX: Final = 1000  # of what was let go of, some 40 bytes each in a sign of life
_TERMS_MAX: Final = 2**32  # a term so far ahead is no service's: terms grow by one


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Extents that went, of a partition with this topic id; to be deleted from `due_ms` on."""

    due_ms: float
    key: TopicPartition
    topic_id: str
    gone: Extents
    kind: str


class Garbage:
    """The garbage of one log, for the service that holds its term."""

    def __init__(
        self,
        log: ServiceLog,
        lease: TermLease,
        merger: Merger,
        options: UpkeepOptions,
        healer: SegmentHealer | None = None,
    ) -> None:
        """`healer`: writes segments again that are missing, before their sources are deleted."""
        self._healer = healer
        self._log, self._lease, self._merger, self._options = log, lease, merger, options
        self._turn = threading.Lock()  # the work
        self._lock = threading.Lock()  # what follows
        self._todo: list[_Waiting] = []
        self._named: set[str] = set()  # objects that an extent lay in at some time
        self._unnamed_ms: dict[str, int] = {}  # since when sweeps find that nobody names them
        self._idle_ms: dict[int, int] = {}  # since when nobody names an entry's inline data
        self._cut: set[int] = set()  # entries above `cut_below` that have no data (any more)
        self._tables: dict[str, frozenset[str]] = {}
        self._swept: tuple[int, int] | None = None  # (entry, ms) of a sweep that left nothing
        self._states_at = -1  # the newest entry when older states were last deleted

    # --- what this process let go of ----------------------------------------------------------

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
        """Take down what an entry of this process has taken out of the log.

        Args: kind: see `Swept`. made: the objects that it put in its place.
        """
        names = {name for extent in gone for name in self.objects_of(extent)}
        with self._lock:
            self._named |= names | set(made)
            due = now_ms + self._options.delete_delay_ms
            self._todo.append(_Waiting(due, key, topic_id, gone, kind))
            notes = self._lease.notes
            segments = [extent for extent in gone if extent.segment]
            noted = notes.let_go | dict.fromkeys((one.segment for one in segments), now_ms)
            notes.let_go = dict(list(noted.items())[-_NOTED_MAX:])
            sizes = {one.segment: (key.topic, one.size) for one in segments}
            notes.let_go_bytes = _of(notes.let_go, notes.let_go_bytes | sizes)

    @property
    def next_ms(self) -> float:
        """When the next of it is due."""
        with self._lock:
            return min((one.due_ms for one in self._todo), default=float("inf"))

    def tidy(self, report: Report) -> None:
        """Delete the segments that merges replaced and retention gave up, whose delay is over.

        Before one goes, the manifests are there of what covers its offsets now. Staged objects are
        the sweep's, inline data `cut`'s. Raises: StorageUnavailableError, LeaseLostError.
        """
        with self._turn:
            with self._lock:
                due = [one for one in self._todo if one.due_ms <= report.time_ms]
            if not due:
                return
            state, looked = self._log.follow(), dict[str, bool]()
            live = self.live(state)
            for one in due:
                segments = [e for e in one.gone if e.segment and e.object not in live]
                if segments and not report.dry_run:
                    topic = state.log.topics.get(one.key.topic)
                    span = one.key, one.gone[0].base, one.gone[-1].end
                    is_same = topic is not None and topic.id == one.topic_id
                    if is_same and not self._is_kept_elsewhere(state, [span], looked, report):
                        continue
                    self._cover(state, one)
                self._delete_segments(segments, one, report)
                if not report.dry_run:
                    with self._lock:
                        self._todo.remove(one)
                        self._forget({extent.segment for extent in one.gone})

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
        """Return whether the segments that contain these offsets now are there, in full length.

        Their sources may be the last good copy, so nothing of these is deleted before. A segment
        that is missing or too short is written again from them, if possible.

        Args: spans: (partition, first offset, end offset). looked: results by object, for one call.
        Cost: a request per segment that is not in `looked`.
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
        """Write a segment again; if that fails, report that its sources stay."""
        if self._healer is not None and self._healer.tried(key, extent, report):
            return
        report.errors.append(
            f"{key}: {self._log.store.url}/{extent.object} is missing or too short, so the objects "
            "that it was made from are kept"
        )

    def _cover(self, state: DisklessState, one: _Waiting) -> None:
        """Make the manifests that miss of what has the offsets of what goes."""
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
        gone: list[StoredObject] = []
        for e in segments:
            manifest = manifest_name(e.base, e.segment, e.end, e.max_timestamp)
            gone += [StoredObject(prefix + manifest, 0, 0), StoredObject(e.object, e.size, 0)]
        self._delete(gone, report, one.kind)

    # --- sweeps --------------------------------------------------------------------------------

    def is_due(self, report: Report) -> bool:
        """Return whether a sweep may find anything, as far as this process knows.

        Nothing becomes garbage without an entry. So there is none if no entry came since a sweep
        that left nothing, unless a late request brought an object back: those are looked for once
        per `stage_retention_ms`.
        """
        if report.dry_run or self._swept is None:
            return True
        number, at_ms = self._swept
        is_old = not 0 <= report.time_ms - at_ms < self._options.stage_retention_ms
        return is_old or number != self._log.state.number or bool(self._lease.notes.let_go)

    def sweep(self, report: Report) -> None:
        """Look at all that lies below the home: make the manifests that miss, delete garbage.

        Raises: StorageUnavailableError, LeaseLostError.
        Cost: see `_listed`; a list request for unfinished uploads.
        """
        with self._turn:
            own = self._lease.term  # before the state: it is at or after this term's entry
            if not own and not report.dry_run:
                raise LeaseLostError(f"{self._log.store.url}: this service has no lease")
            errors = len(report.errors)
            if not report.dry_run:
                self._swept = None
            state = self._log.follow()
            listed, others = self._listed(state)
            staged = [one for one in others if one.name.startswith(staged_prefix(state.log_id))]
            state = self._log.follow()  # after the lists: what they show may be named by now
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
            # A dry run without a lease: what the next service would do.
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
        """List all objects but the ledger's: those of each partition's directory, and the others.

        Cost: a list request for each 1,000 objects and two more. A store that can't skip the
        ledger lists each directory by itself where the ledger would take more requests.
        """
        store, directories = self._log.store, list(_directories(state))
        if store.skips or state.number < _PAGE * len(directories):
            listed: dict[Directory, list[StoredObject]] = {each: [] for each in directories}
            by_prefix = {each.prefix: listed[each] for each in directories}
            others: list[StoredObject] = []
            for one in store.list(without=ledger_prefix(state.log_id)):
                top, slash, _ = one.name.partition("/")
                by_prefix.get(top + slash, others).append(one)
            return listed, others
        prefixes = (staged_prefix(state.log_id), READERS, TRIAL)
        listed = {each: store.list(each.prefix) for each in directories}
        return listed, [one for prefix in prefixes for one in store.list(prefix)]

    def _heal(
        self,
        state: DisklessState,
        listed: dict[Directory, list[StoredObject]],
        report: Report,
    ) -> bool:
        """Write segments again whose objects are missing or too short; tell whether one was.

        What they were merged from is deleted by sweeps, and by this one only afterwards.
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
        """Ask for the object itself, as a listing may lag."""
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
        """Make a manifest; one that can't be made keeps nothing else of the sweep from its work."""
        try:
            self._merger.make_manifest(key, extent, state)
        except (SourceChangedError, DataCorruptionError, InvalidRequestError) as error:
            report.errors.append(f"{key}: a manifest can't be made: {error}")
            return False
        return True

    def _let_go(self, live: set[str], listed: list[StoredObject], report: Report) -> set[str]:
        """What was named once and by no extent now, for as long as readers may plan with it."""
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
        """When the next goes of what past services let go of and a sweep left; inf if none is."""
        with self._lock:
            own = {extent.segment for one in self._todo for extent in one.gone}
            others = [at for name, at in self._lease.notes.let_go.items() if name not in own]
        due = (min(at, now_ms) + self._options.delete_delay_ms for at in others)
        return min((at for at in due if at > now_ms), default=float("inf"))

    def _noted(
        self, listed: dict[Directory, list[StoredObject]], named: set[str], report: Report
    ) -> dict[str, bool]:
        """{segment id: whether its time is over} of what services noted that they let go of.

        A time that hasn't come yet is another clock's: it counts from now. So nothing waits longer
        than the delay from when it is first seen here.
        """
        left = {_segment_of(each) for objects in listed.values() for each in objects} - named
        notes, now_ms = self._lease.known_notes(), report.time_ms
        with self._lock:
            found = {s: min(at, now_ms) for s, at in notes.let_go.items() if s in left}
            if not report.dry_run:
                notes.let_go, notes.let_go_bytes = found, _of(found, notes.let_go_bytes)
        delay_ms = self._options.delete_delay_ms
        return {segment: now_ms - at >= delay_ms for segment, at in found.items()}

    def _sweep_segments(
        self,
        state: DisklessState,
        own: int,
        let_go: set[str],
        listed: dict[Directory, list[StoredObject]],
        report: Report,
    ) -> None:
        """Of past terms, whatever the state doesn't name; of the own one, what it did name.

        What was noted waits for its time, whatever the term: ids are of one segment for ever, so
        what an entry has once let go of is never named again.
        """
        named = {e.segment for extents in state.kept_extents() for e in extents if e.segment}
        noted = self._noted(listed, named, report)
        past: list[StoredObject] = []
        expired: list[StoredObject] = []
        for objects in listed.values():
            gone = {_segment_of(each) for each in objects if each.name in let_go}
            for each in objects:
                found = _segment_of(each)
                if not found or found in named or not noted.get(found, True):
                    continue
                if found in noted:
                    expired.append(each)
                elif is_past(found, own):
                    past.append(each)
                elif found in gone:
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
        """Delete them; return whether there are more that a higher floor makes garbage."""
        gone: list[StoredObject] = []
        orphans = False
        for each in staged:
            number = parse_staged(self._log.log_id, each.name)
            if number is None or each.name in live:
                continue
            if number < state.floor or each.name in let_go:
                gone.append(each)
            else:
                orphans |= number < state.number
        self._delete(gone, report, "staged")
        return orphans

    def _sweep_positions(self, listed: Iterable[StoredObject], report: Report) -> None:
        """Delete a group's positions, except the highest and the one that is kept below it."""
        by_group: dict[str, list[tuple[int, StoredObject]]] = {}
        for each in listed:
            found = parse_position(each.name)
            if found is not None:
                by_group.setdefault(found[0], []).append((found[1], each))
        lower = [
            each
            for positions in by_group.values()
            for _, each in sorted(positions, key=lambda one: one[0])[:-2]
        ]
        self._delete(lower, report, "position")

    def _sweep_trials(self, listed: Iterable[StoredObject], report: Report) -> None:
        """What a home's maker left that was cut while it tried the store."""
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
        """Delete at once what waits for its delay, and all other garbage: for an erasure.

        Readers that hold a plan fold the news sooner. Raises: as `sweep`; it costs two of them.
        """
        later = replace(report, time_ms=report.time_ms + self._options.delete_delay_ms + 1)
        self.tidy(replace(report, time_ms=_NEVER_MS))
        self.sweep(report)  # what nobody names is first seen by now
        self.sweep(later)
        self.cut(report)

    # --- entries, states, the stage floor ------------------------------------------------------

    def cut(self, report: Report, *, delay_ms: int = 0) -> None:
        """Cut the inline data that no extent lies in.

        Args: delay_ms: for so long this process must have seen that nobody names them.
        Cost: a get for each entry, once in its life, 64 at the same time and 10,000 in one call; a
        put for each that has data.
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
            for number, found in self._cut_some(state, due, report):
                objects, size = objects + (found > 0), size + found
                if not report.dry_run:
                    self._cut.add(number)
            if objects:
                report.swept.append(Swept(kind="inline", objects=objects, bytes=size))
            below = notes.cut_below
            while below in self._cut:
                self._cut.remove(below)
                below += 1
            notes.cut_below = below

    def _cut_some(
        self, state: DisklessState, numbers: list[int], report: Report
    ) -> Iterator[tuple[int, int]]:
        """Cut entries; yields (number, the bytes that went), none for one that has to stay."""
        looked = dict[str, bool]()
        for at in range(0, len(numbers), _CUT_AT_ONCE):
            some = numbers[at : at + _CUT_AT_ONCE]
            names = [entry_name(self._log.log_id, number) for number in some]
            raws = self._log.store.get_many(names, limit=ENTRY_BYTES_MAX)
            for number, name, raw in zip(some, names, raws, strict=True):
                if isinstance(raw, FileNotFoundError):
                    raise missing_entry(self._log.commits.head.entries.path(number))
                if isinstance(raw, Exception):
                    raise raw
                entry = decode(raw, number=number, path=f"{self._log.store.url}/{name}")
                size = len(raw) - entry.data_at
                if size and not report.dry_run:
                    spans = [(key, each.base, each.end) for key, each in entry.extents]
                    if not self._is_kept_elsewhere(state, spans, looked, report):
                        continue
                    self._lease.check()
                    self._log.store.put(name, raw[: entry.data_at])
                yield number, size

    def raise_floor(self, report: Report) -> None:
        """Raise the stage floor to the newest entry that is `stage_retention_ms` old.

        By the store's own times: that of the entry's object, and that of the sign of life, which
        is put for it. Cost: a put, and a list request for each halving of what may be old enough.
        Raises: LeaseLostError, StorageUnavailableError.
        """
        with self._turn:
            state, term = self._log.follow(), self._lease.term
            if not report.dry_run:
                self._lease.renew()
            found = self._log.store.list(service_name(term or state.term))
            if not found or not state.number > state.floor:
                return
            before_ms = found[0].time_ms - self._options.stage_retention_ms
            floor = self._newest_before(state, before_ms)
            if floor <= state.floor:
                return
            if not report.dry_run:
                self._create_floor(floor, term)
            report.notes.append(
                f"what was staged before entry {floor} and not committed "
                f"{'would be' if report.dry_run else 'is'} given up"
            )

    def _newest_before(self, state: DisklessState, before_ms: int) -> int:
        """The newest entry that was there before; entries that were cut since look younger."""
        low, high = state.floor, state.number
        while low < high:
            middle = (low + high + 1) // 2
            found = self._log.store.list(entry_name(self._log.log_id, middle))
            if found and found[0].time_ms <= before_ms:
                low = middle
            else:
                high = middle - 1
        return low

    def _create_floor(self, floor: int, term: int) -> None:
        def decide(now: DisklessState) -> NewEntry:
            if now.term != term:
                raise LeaseLostError(f"the log's term is {now.term}, this service's was {term}")
            if now.floor >= floor:
                raise ConflictError(f"the stage floor is {now.floor} already")
            return NewEntry(record=FloorRecord(term=term, floor=floor))

        try:
            self._log.create(decide)
        except ConflictError:
            return

    def give_up_topics(self, report: Report) -> None:
        """Give up the deleted topics whose file.delete.delay.ms is over; a sweep takes the rest.

        By the store's own times, as the floor: of the entry that deleted it, and of the sign of
        life. Cost: nothing, but a put and a list request each where some topics wait.
        Raises: LeaseLostError, StorageUnavailableError.
        """
        if not self._log.state.deleted:
            return
        with self._turn:
            state, term = self._log.follow(), self._lease.term
            if not report.dry_run:
                self._lease.renew()
            found = self._log.store.list(service_name(term or state.term))
            due = [one for one in state.deleted if found and self._is_over(state, one, found[0])]
            if not due:
                return
            if not report.dry_run:
                self._create_purge(due, term)
            would = "would be" if report.dry_run else "is"
            report.notes += [
                f"topic {state.log.deleted[one].name} (id {one}), which was deleted, {would} given "
                f"up: file.delete.delay.ms={state.log.deleted[one].delay_ms} is over"
                for one in due
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
                raise LeaseLostError(f"the log's term is {now.term}, this service's was {term}")
            left = tuple(one for one in ids if one in now.deleted)
            if not left:
                raise ConflictError("they were given back, or given up, meanwhile")
            return NewEntry(record=PurgeRecord(ids=left))

        with contextlib.suppress(ConflictError):
            self._log.create(decide)

    def states(self, report: Report) -> None:
        """Delete the states but the newest two. Cost: a list request if an entry has come."""
        with self._turn:
            number = self._log.state.number
            if number == self._states_at:
                return
            listed = self._log.store.list(state_prefix(self._log.log_id))
            states = [one for one in listed if parse_state(self._log.log_id, one.name) is not None]
            self._delete(states[:-STATES_KEPT], report, "state")  # listed by name: by number
            if not report.dry_run:
                self._states_at = number

    # --- within --------------------------------------------------------------------------------

    def live(self, state: DisklessState) -> set[str]:
        """All objects that extents lie in."""
        named = {e for extents in state.kept_extents() for e in extents if e.pieces}
        return state.live_objects() | {name for e in named for name in self.objects_of(e)}

    def objects_of(self, extent: Extent) -> frozenset[str]:
        """Its object; of one in an extent table, all that the table names."""
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
                    "the extent table is missing, so nothing is deleted until it is back; restore "
                    "the object from a copy of the bucket",
                    path=path, first=extent.base, end=extent.end,
                ) from error  # fmt: skip
            known = self._tables[extent.object] = frozenset({extent.object, *head.names})
        return known

    def _delete(self, gone: Iterable[StoredObject], report: Report, kind: str) -> None:
        """Delete objects, manifests first; or say what would go."""
        found = list(gone)
        if not found:
            return
        manifests = [each.name for each in found if parse_manifest(_last(each.name)) is not None]
        others = [each.name for each in found if parse_manifest(_last(each.name)) is None]
        for names in (manifests, others):
            for at in range(0, len(names) if not report.dry_run else 0, _DELETED_MAX):
                self._lease.check()
                self._log.store.delete(names[at : at + _DELETED_MAX])
        size = sum(each.size for each in found)
        report.swept.append(Swept(kind=kind, objects=len(found), bytes=size))


def _directories(state: DisklessState) -> Iterator[Directory]:
    """Where segments of this log may lie: of topics that it has or had."""
    for key in partitions_of(state):
        yield Directory(*key, state.log.topics[key.topic].id)
    for topic_id, held in sorted(state.log.deleted.items()):
        for partition in sorted(held.ends):
            yield Directory(held.name, partition, topic_id)
    for topic_id, (name, partitions) in sorted(state.former.items()):
        for partition in range(partitions):
            yield Directory(name, partition, topic_id)


def is_past(segment_id: str, own: int) -> bool:
    """Whether a service of an earlier term made it, or none of this log (a fork, a tier)."""
    term = term_of(segment_id)
    return term < own or term > own + _TERMS_MAX


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _of(
    let_go: Mapping[str, int], sizes: Mapping[str, tuple[str, int]]
) -> dict[str, tuple[str, int]]:
    """The sizes of what still waits."""
    return {name: sizes[name] for name in let_go if name in sizes}


def _segment_of(each: StoredObject) -> str:
    """The id of the segment that an object belongs to; "" if it is none's."""
    log, manifest = parse_log(_last(each.name)), parse_manifest(_last(each.name))
    if manifest is not None:
        return manifest.id
    return "" if log is None else log[1]


def _manifest_ids(listed: Iterable[StoredObject]) -> set[str]:
    return {found.id for each in listed if (found := parse_manifest(_last(each.name))) is not None}


def _base(extent: Extent) -> int:
    return extent.base
