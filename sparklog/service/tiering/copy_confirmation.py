"""Checks that a copy in the store is complete before the local segment is deleted.

The log's metadata contains which segments were copied. Since then the bucket may have been emptied,
restored from an older state, damaged, or replaced by another bucket of the same name. So before the
round deletes local segments, it reads each copy that will replace a local segment, compares it with
the checksums of its manifest, and lists the partition's objects. If a copy is missing or damaged,
or the store does not answer, the local segments stay. Damaged copies are recorded
(`damaged_copies`), and the next round replaces them.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.log.due_segments import DueSegments, RetentionConstraints
from sparklog.logdir.retention.partition_retention import PartitionRetention
from sparklog.pluralize import pluralize
from sparklog.service.tiering.remote_log import RemoteLog
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.round_report import Report
from sparklog.tiered.copying.content_check import damaged_copies, faults_of, note_damaged
from sparklog.tiered.copying.plan import copied_ranges
from sparklog.tiered.encryption.envelope import stored_size
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import directory_of, log_object, manifest_object
from sparklog.tiered.layout.topic_owners import is_owned
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.remote_log_metadata.metadata_cache import RemoteLogMetadataCache
from sparklog.tiered.remote_segment import RemoteSegment

Due = Mapping[TopicPartition, DueSegments | None]
Terms = Mapping[TopicPartition, RetentionConstraints]
Places = Mapping[TopicPartition, PartitionRetention]
_SHOWN: Final = 3


class CopyConfirmation:
    """The check of a round: `read` takes no lock, `confirm` runs while copies can't change.

    Args:
        remote_log: The metadata of the copies.
        store: None for a store that could not be opened.
        log_id: The log's id in the store.
        report: The report of the round.
        keyring: The keys of encrypted copies.
        threads: Number of copies that are read at the same time.
        stopping: Returns True to end the reading early.
    """

    def __init__(
        self,
        remote_log: RemoteLog,
        store: Store | None,
        log_id: str,
        report: Report,
        *,
        keyring: Keyring | None = None,
        threads: int = 1,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._remote_log, self._store, self._log_id = remote_log, store, log_id
        self._report, self._keyring, self._threads = report, keyring, threads
        self._stopping = stopping
        self._mutex = threading.Lock()
        self._answers = store is not None  # after a timeout, no further request is sent
        self._looked = not log_id  # the log of an earlier version has no id
        self._whole: set[str] = set()
        self._bad: set[str] | None = None
        self._faults: dict[TopicPartition, list[str]] = {}

    def relied_upon(
        self, cache: RemoteLogMetadataCache, known: Places, due: Due, terms: Terms
    ) -> list[tuple[TopicPartition, RemoteSegment]]:
        """Return the copies with local segments that are due for deletion; empty in a dry run."""
        if self._report.dry_run:
            return []
        return [
            (key, copy)
            for key, found in due.items()
            if found is not None and found.local and _relies(terms.get(key))
            for copy in self._copies(cache, key, known)
            if any(copy.base < one.end and copy.end > one.base for one in found.expired)
        ]

    def read(self, copies: Sequence[tuple[TopicPartition, RemoteSegment]]) -> None:
        """Read these copies, and remember the complete copies.

        Cost: a GET for a manifest and another for each 8 MiB of its log. Each copy is read only
        once, because its local segment is deleted in this round.
        """
        if copies and self._is_store_ours():
            with ThreadPoolExecutor(self._threads, "sparklog-confirmer") as pool:
                for _ in pool.map(self._read, copies):
                    pass

    def _read(self, wanted: tuple[TopicPartition, RemoteSegment]) -> None:
        key, copy = wanted
        if not self._answers or self._stopping():
            return
        assert self._store is not None

        def ask(get: Callable[[], bytes]) -> bytes:
            if self._stopping():
                raise LeaseLostError("the service is stopping")
            self._remote_log.lease.check()
            return get()

        try:
            for name, what, _ in faults_of(self._store, copy, self._keyring, ask=ask):
                self._note(key, copy, f"{self._store.url}/{name}: {what}")
                return
        except (StorageUnavailableError, InvalidRequestError) as error:
            self._fail(error)
            return
        except LeaseLostError:
            return
        self._whole.add(copy.id)

    def confirm(
        self, cache: RemoteLogMetadataCache, known: Places, due: Due, terms: Terms
    ) -> dict[TopicPartition, RetentionConstraints]:
        """Return the retention constraints, with complete copies only.

        Missing copies are reported.

        Cost: a GET, and a listing of each partition with due segments.
        """
        checked = dict(terms)
        for key, found in due.items():
            one = terms.get(key)
            if one is None or one.tier is None or not _relies(one):
                continue
            if found is not None and not found.expired:
                continue
            copies = self._copies(cache, key, known)
            there = self._complete_copies(key, copies) if copies and self._is_store_ours() else []
            checked[key] = replace(one, tier=replace(one.tier, copied=copied_ranges(there)))
        self._report_faults()
        return checked

    def _copies(
        self, cache: RemoteLogMetadataCache, key: TopicPartition, known: Places
    ) -> list[RemoteSegment]:
        """Return a partition's copies that are not recorded as damaged."""
        commits = self._remote_log.commits
        if self._bad is None:
            self._bad = damaged_copies(commits.fs, commits.home)
        copies = self._remote_log.valid_copies(cache, key, known[key])
        return [copy for copy in copies if copy.id not in self._bad]

    def _is_store_ours(self) -> bool:
        """Return True if the store answers, and contains this log's owner object."""
        # Without the owner object no copy counts: it is another store, where copies of the same
        # names may belong to another history of the log.
        if self._answers and not self._looked:
            assert self._store is not None
            try:
                if not is_owned(self._store, self._log_id):
                    raise StorageUnavailableError(
                        f"{self._store.url} no longer contains this log's owner object: check that "
                        "it is the right store, and that its disk is mounted",
                        path=self._store.url,
                    )
            except StorageUnavailableError as error:
                self._fail(error)
            self._looked = True
        return self._answers

    def _fail(self, error: Exception) -> None:
        with self._mutex:  # several threads may fail at the same time
            if self._answers:
                self._answers = False
                self._report.errors.append(f"local segments stay: {error}")

    def _complete_copies(
        self, key: TopicPartition, copies: Sequence[RemoteSegment]
    ) -> list[RemoteSegment]:
        assert self._store is not None
        try:
            listed = {o.name: o.size for o in self._store.list(directory_of(copies[0]).prefix)}
        except StorageUnavailableError as error:
            self._fail(error)
            return []
        complete = []
        for copy in copies:
            sizes = (copy.size, stored_size(copy.size))
            if self._remote_log.is_planned(copy):
                complete.append(copy)
            elif manifest_object(copy) not in listed:
                self._note(key, copy, f"{self._store.url}/{manifest_object(copy)} is missing")
            elif listed.get(log_object(copy)) not in sizes:
                stored_bytes = listed.get(log_object(copy), 0)
                what = f"the object has {stored_bytes} bytes, but {copy.size} were copied"
                self._note(key, copy, f"{self._store.url}/{log_object(copy)}: {what}")
            elif self._report.dry_run or copy.id in self._whole:
                complete.append(copy)
        return complete

    def _note(self, key: TopicPartition, copy: RemoteSegment, what: str) -> None:
        """Record a damaged copy, for the report and for the next round."""
        commits = self._remote_log.commits
        assert self._bad is not None
        self._bad.add(copy.id)
        self._faults.setdefault(key, []).append(f"offsets [{copy.base}, {copy.end}): {what}")
        # In a file of the log dir, because a service that restarts must not rely on this copy.
        if not self._report.dry_run:
            note_damaged(commits.fs, commits.home, copy.id, what)

    def _report_faults(self) -> None:
        for key, faults in self._faults.items():
            shown = "; ".join(sorted(faults)[:_SHOWN]) + ("; ..." if faults[_SHOWN:] else "")
            self._report.errors.append(
                f"{key}: {pluralize(len(faults), 'copy', 'copies')} missing or damaged in the "
                f"store (is it the right store?), so the local segments stay, and the next round "
                f"copies them again: {shown}"
            )


def _relies(terms: RetentionConstraints | None) -> bool:
    return terms is not None and terms.local and terms.tier is not None and bool(terms.tier.copied)
