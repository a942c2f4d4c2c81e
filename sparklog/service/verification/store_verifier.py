"""`verify` of a log in a bucket; runs beside writers and services, and makes no changes.

A merge or retention may replace objects during the check. So findings are checked again on a newer
state; only those that are found each time, in objects that the state still names, are reported.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from sparklog.clock import monotonic_ms, pause
from sparklog.common import TopicPartition
from sparklog.diskless.extents import Extent
from sparklog.diskless.home_object import check_new, known_home, repairable_log_id
from sparklog.diskless.ledger_repair import find_lost_entries
from sparklog.diskless.names import HOME, entry_name, ledger_prefix
from sparklog.diskless.state import DisklessState, partitions_of
from sparklog.errors import DataCorruptionError, InvalidRequestError, UnsupportedVersionError
from sparklog.log.batch_figures import BatchTally
from sparklog.pluralize import pluralize
from sparklog.progress import Progress
from sparklog.service.verification.batches import small_batch_warnings, topic_figures
from sparklog.service.verification.findings import (
    BAD,
    Finding,
    Findings,
    FixKind,
    Severity,
    Verification,
    ordered,
)
from sparklog.service.verification.store_extents import ExtentCheck
from sparklog.service.verification.store_ledger import LedgerCheck
from sparklog.service.verification.store_side_objects import SideObjectCheck
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.object_names import Directory
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.reading.store_retry import StoreRetry
from sparklog.tiered.target import open_store

LOOKS_MAX: Final = 5
PAUSE_MS: Final = 100
_SITUATION: Final = "a log in a store"


def verify_store(
    url: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: RemoteOptions | None = None,
    threads: int = 4,
    progress: Progress | None = None,
    store: Store | None = None,
) -> Verification:
    """Check every invariant of a log in a bucket. Takes no lock and makes no changes.

    Every entry can be decoded, follows the entry before it, and can be applied. The newest state
    objects equal the folded entries. Extents cover all offsets from log start to end; their objects
    exist, and contain complete batches with correct CRCs and the offsets of the state. Manifests of
    closed segments exist and agree, and their indexes lead to batches.

    Args:
        url: The URL of the log.
        storage_options: Options of fsspec for the store.
        options: Options for reading. Encrypted records are not checked without the keyring.
        threads: The number of extents that are read at the same time.
        progress: Called with the number of checked extents, and the total.
        store: A store instead of the URL's, for tests.

    Raises:
        InvalidRequestError: There is no log.
        StorageUnavailableError: The store does not answer.

    Cost:
        A GET for each entry, and a pass over all bytes of extents.
    """
    options, began = options or RemoteOptions(), monotonic_ms()
    store = store or open_store(url, storage_options)
    keys = Keyring.load(options.remote_keyring) if options.remote_keyring else None
    retry = StoreRetry(options.patience_ms(following=False))
    report, out = Verification(directories=[store.url], situation=_SITUATION), Findings()
    log_id = retry.call(lambda: _log_id(store, out))
    if log_id is None:
        report.findings = out.found
    else:
        _Verifier(store, log_id, keys, retry, threads, progress, out).run(report)
    report.took_ms = monotonic_ms() - began
    return report


def _log_id(store: Store, out: Findings) -> str | None:
    """Return the log's id, if known. Reports a wrong home object as a finding."""
    log_id = None
    try:
        log_id = known_home(store).log_id
        if isinstance(store.get_many([entry_name(log_id, 0)])[0], FileNotFoundError):
            check_new(store, log_id)
    except DataCorruptionError as error:
        if not error.path.endswith(f"/{HOME}"):
            return log_id  # the check of the ledger reports the missing entry
        try:
            log_id, fix = repairable_log_id(store), FixKind.HOME
        except InvalidRequestError:
            log_id, fix = None, None
        out.add(Severity.DAMAGE, error.path, error.reason, fix=fix)
    return log_id


class _Verifier:
    def __init__(
        self,
        store: Store,
        log_id: str,
        keys: Keyring | None,
        retry: StoreRetry,
        threads: int,
        progress: Progress | None,
        out: Findings,
    ) -> None:
        self._store, self._keys, self._retry = store, keys, retry
        self._threads, self._progress = threads, progress
        self._general = out
        self._ledger = LedgerCheck(store, log_id, retry, self._general)
        self._found: dict[TopicPartition, list[Finding]] = {}
        self._batches: list[tuple[str, BatchTally]] = []

    def run(self, report: Verification) -> None:
        """Check the log, and fill in the report."""
        side = SideObjectCheck(self._store, self._retry, self._general)
        state = self._ledger.run()
        self._report_lost()
        if self._ledger.is_whole:
            side.run(state)
        self._found = self._checked(state, list(partitions_of(state)))
        tallies = list(self._batches)  # from the first check, which covers all extents
        for _ in range(LOOKS_MAX - 1):
            suspects = [
                key
                for key, found in self._found.items()
                if any(finding.severity in BAD for finding in found)
            ]
            if not suspects:
                break
            pause(PAUSE_MS)
            number = state.number
            state = self._ledger.run()
            self._check_again(state, suspects)
            if state.number == number:
                break
        extents = [extent for key in partitions_of(state) for extent in state.extents.get(key, ())]
        found = [finding for some in self._found.values() for finding in some]
        report.batches = topic_figures(tallies)
        places = dict.fromkeys(report.batches, self._store.url)
        found += small_batch_warnings(report.batches, places)
        report.findings = ordered([*self._general.found, *found])
        report.partitions = len(list(partitions_of(state)))
        report.segments = len(extents)
        report.bytes = sum(extent.size for extent in extents)
        sealed = sum(extent.object in state.keys for extent in extents)
        if sealed and self._keys is None:
            noun = pluralize(sealed, "encrypted extent")
            report.unseen = f"{noun}: give the key ring (--keyring, remote.keyring)"

    def _report_lost(self) -> None:
        """Report entries that are lost at the end of the ledger, with the losses of a repair."""
        names, log_id = self._ledger.names or (), self._ledger.state.log_id
        try:
            lost = self._retry.call(partial(find_lost_entries, self._store, log_id, names))
        except UnsupportedVersionError:
            return  # reported by the check of the ledger
        if lost is None:
            return
        prefix = f"{self._store.url}/{ledger_prefix(log_id)}"
        found = self._general.found
        parts = [f for f in found if f.file.startswith(prefix) and (f.first or 0) >= lost.first]
        self._general.found = [one for one in found if one not in parts]
        why = parts[0].what if parts else f"{lost.proof}, but no such entry is left"
        what = f"{why}. With a repair these are lost: {'; '.join(lost.losses)}"
        path = f"{self._store.url}/{entry_name(log_id, lost.first)}"
        end = lost.end if lost.end > lost.first else None
        self._general.add(
            Severity.DAMAGE, path, what, first=lost.first, end=end, fix=FixKind.LEDGER
        )

    def _check_again(self, state: DisklessState, suspects: list[TopicPartition]) -> None:
        """Keep the findings that are found again. Partitions deleted since have no findings."""
        existing = set(partitions_of(state))
        again = self._checked(state, [key for key in suspects if key in existing])
        for key in suspects:
            before = {finding.place for finding in self._found[key]}
            self._found[key] = [f for f in again.get(key, ()) if f.place in before]

    def _checked(
        self, state: DisklessState, keys: list[TopicPartition]
    ) -> dict[TopicPartition, list[Finding]]:
        check = ExtentCheck(self._store, state, self._keys, self._retry)
        outs = {key: Findings(key.topic, key.partition) for key in keys}
        jobs: list[tuple[TopicPartition, Extent]] = []
        for key in keys:
            prefix = Directory(*key, state.log.topics[key.topic].id).prefix
            check.check_coverage(key, f"{self._store.url}/{prefix}", outs[key])
            jobs += [(key, extent) for extent in state.extents.get(key, ())]
        check.plan(tuple(extent for _, extent in jobs))

        def one(job: tuple[TopicPartition, Extent]) -> None:
            check.check(*job, outs[job[0]])

        with ThreadPoolExecutor(self._threads, thread_name_prefix="sparklog-verify") as pool:
            for number, _ in enumerate(pool.map(one, jobs), 1):
                if self._progress is not None:
                    self._progress(number, len(jobs))
        self._batches = check.batches
        return {key: out.found for key, out in outs.items()}
