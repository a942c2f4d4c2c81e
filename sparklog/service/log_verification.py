"""`verify`: checks every invariant of a log, and repairs what can be repaired."""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from sparklog.clock import Clock, monotonic_ms, pause, system_clock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions
from sparklog.errors import DataCorruptionError, InvalidRequestError, SparklogError
from sparklog.format.names import partition_dir
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.topic_names import INTERNAL, REMOTE_METADATA
from sparklog.logdir.group_offsets import GroupFiles
from sparklog.logdir.ledger import LEDGER
from sparklog.logdir.log_dirs import not_of_log, offline_error
from sparklog.logdir.offline_partitions import stored_metadata, why_foreign
from sparklog.logdir.paths import split_path
from sparklog.logdir.segment_files import is_partition
from sparklog.logdir.view import LogDirView
from sparklog.opening import holds_home, url_of
from sparklog.pluralize import pluralize
from sparklog.progress import Progress, shows_progress
from sparklog.service.quick_verification import verify_quickly
from sparklog.service.repair.ledger_repair import LedgerRepair
from sparklog.service.repair.log_repair import LogRepair
from sparklog.service.verification.batches import small_batch_warnings, topic_figures
from sparklog.service.verification.expectations import expected_partition
from sparklog.service.verification.findings import (
    BAD,
    Finding,
    Findings,
    Fix,
    FixKind,
    Severity,
    Verification,
    ordered,
)
from sparklog.service.verification.ledger import read_ledger
from sparklog.service.verification.leftover_files import check_log_dir
from sparklog.service.verification.log_dir_state import LogDirState, Situation
from sparklog.service.verification.offset_checkpoints import (
    Checkpoints,
    check_checkpoints,
    read_checkpoints,
)
from sparklog.service.verification.partition import Checked, PartitionCheck, small_segments
from sparklog.service.verification.remote_storage import (
    check_known_copies,
    check_remote_settings,
    with_rebuild,
)
from sparklog.storage.committed_appends import Appends
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.remote_log_metadata.topic import RemoteLogMetadataConsumer
from sparklog.tiered.settings import read_settings
from sparklog.tiered.target import open_store

LOOKS_MAX: Final = 5  # checks of a log that is being written, before a finding counts
PAUSE_MS: Final = 100


@shows_progress("verifying")
def verify(
    path: str | os.PathLike[str],
    repair: bool = False,
    *,
    quick: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    options: Mapping[str, object] | None = None,
    threads: int = 4,
    progress: Progress | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Verification:
    """Check every invariant of a log.

    The function checks batches (CRC, offsets, leader epochs), indexes, aborted transactions,
    producer snapshots, file names, the ledger and files derived from it, Kafka's checkpoints, and
    leftovers. It takes no lock and makes no changes, whether the log is open elsewhere, closed,
    left by a crash, or a broker's. Findings in files that a writer may be changing are checked
    several times.

    With `repair`, files that are derived from the log are rebuilt, durably and by rename: indexes,
    snapshots, leader epochs, watermarks, topics, checkpoints. Files that don't belong to the log
    are moved to plain files `sparklog-quarantine-*` of their log dir. No record is ever removed:
    damaged records stay, and are reported with their exact range. A repair needs the log's write
    lock; a log that was left by a crash is recovered first, by opening it. A damaged commit ledger
    is rebuilt first; `done` then names the sources and the losses.

    For a log in a bucket, the function checks entries, states, extents, batches, manifests and
    their indexes; it reads all bytes. A repair writes a missing or wrong `sparklog.home`, manifests
    and states again, and damaged segments from the objects that they were merged from, while these
    exist. Originals are copied to `quarantine/` first.

    Args:
        path: Log dirs joined by ",", or the URL of a log in a bucket.
        repair: Rebuild derived files, as described above.
        quick: Only checks that don't read data, in about a second: the log's health, and names and
            sizes of files. `unseen` lists the omitted checks. A quick check also accepts an
            archive, and missing log dirs.
        storage_options: Options of fsspec for the store.
        options: Log-wide options, as for `sparklog.open` (lock.timeout.ms, remote.keyring).
        threads: Partitions (in a bucket: extents) that are read at the same time, about 5 MiB each.
        progress: Called with the number of bytes done, and the total.
        fs: The file system of log dirs; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Returns:
        The report; `report.ok` is True if no damage and no difference remains.

    Raises:
        InvalidRequestError: There is no directory, or no log.
        StorageUnavailableError: The disk or the store fails.

    Cost:
        A pass over all segments, at about the disk's speed; in a bucket a GET for each entry.

    Examples:
        >>> from sparklog.service import verify
        >>> report = verify("log")
        >>> report.ok, report.partitions
        (True, 2)
    """
    if quick:
        if repair:
            raise InvalidRequestError(
                "quick=True can't be combined with repair=True, because a quick check finds too "
                "little for a repair: leave out quick=True"
            )
        return verify_quickly(
            path, storage_options=storage_options, options=options, fs=fs, clock=clock
        )
    remote, rest = RemoteOptions.parse(options or {})
    url = url_of(path, fs=fs)
    if url is not None:
        return _of_store(url, repair, storage_options, remote, threads, progress, clock)
    settings = LogOptions.parse(rest)
    verifier = _Verifier(fs, split_path(path), settings, threads, progress)
    began = monotonic_ms()
    report = verifier.run()
    if repair and FixKind.COMMIT_LEDGER in _fixes(report):
        first, verifier = report, _Verifier(fs, split_path(path), settings, threads, progress)
        report = _ledger_repaired(fs, clock, settings, first, verifier)
    elif FixKind.COMMIT_LEDGER in _fixes(report):
        report.findings = _with_losses(fs, clock, report)
    if repair and report.refused is None and _fixes(report):
        done, refused = _repair(fs, clock, settings, report, verifier)
        after = _Verifier(fs, split_path(path), settings, threads, progress).run()
        report = _after_repair(report, after, done, refused)
    report.unseen = _unchecked_copies(fs, split_path(path), clock)
    report.took_ms = monotonic_ms() - began
    return report


def _fixes(report: Verification) -> set[FixKind]:
    """Return the kinds of repairs that remain to be done."""
    return {f.fix.kind for f in report.findings if f.fix is not None and not f.repaired}


def _ledger_repaired(
    fs: FileSystem, clock: Clock, options: LogOptions, before: Verification, verifier: "_Verifier"
) -> Verification:
    """Repair the commit ledger, then verify again, because all else is compared with the ledger."""
    state = LogDirState.read(fs, before.directories)
    repair = LogRepair(fs, clock, options, state, {}, before.findings)
    refused = repair.repair_ledger()
    if refused is not None:
        before.done, before.refused = repair.done, refused
        return before
    return _after_repair(before, verifier.run(), repair.done, None)


def _with_losses(fs: FileSystem, clock: Clock, report: Verification) -> list[Finding]:
    """Return the findings; the first finding in the ledger names the losses of a repair."""
    state = LogDirState.read(fs, report.directories)
    if state.situation is Situation.OPEN:
        return report.findings  # a repair would be refused, and the files are changing
    was_crash = state.situation is Situation.CRASHED
    try:
        losses = LedgerRepair(fs, clock, state, was_crash=was_crash, done=[]).losses()
    except (SparklogError, FileNotFoundError):
        return report.findings
    findings = list(report.findings)
    for at, finding in enumerate(findings):
        if finding.fix is not None and finding.fix.kind is FixKind.COMMIT_LEDGER:
            lost = "; ".join(losses) or "nothing"
            findings[at] = replace(finding, what=f"{finding.what}. A repair would lose: {lost}")
            break
    return findings


def _of_store(
    url: str,
    repair: bool,
    storage_options: Mapping[str, Any] | None,
    remote: RemoteOptions,
    threads: int,
    progress: Progress | None,
    clock: Clock,
) -> Verification:
    try:
        is_home = holds_home(url, storage_options, remote)
    except DataCorruptionError:  # reported as a finding
        is_home = True
    if not is_home:
        raise InvalidRequestError(
            f"{url} contains no log: correct the URL, or, if it is an archive, check its segments "
            "by `sparklog tier verify`",
            path=url,
        )
    from sparklog.service.repair.store_repair import StoreRepair
    from sparklog.service.verification.store_verifier import verify_store

    def look() -> Verification:
        return verify_store(
            url, storage_options=storage_options, options=remote, threads=threads,
            progress=progress,
        )  # fmt: skip

    report = look()
    if repair and any(finding.fix is not None for finding in report.findings):
        store_repair = StoreRepair(
            open_store(url, storage_options), clock, report.findings, remote
        )  # fmt: skip
        refused = store_repair.run()
        report = _after_repair(report, look(), store_repair.done, refused)
    return report


def _unchecked_copies(fs: FileSystem, directories: list[str], clock: Clock) -> str | None:
    """Describe the copies in remote storage, which `verify` does not check."""
    # For the user: a log without findings may still have lost records that are only remote.
    metadata = partition_dir(REMOTE_METADATA, 0)
    if not any(fs.is_dir(os.path.join(directory, metadata)) for directory in directories):
        return None
    try:
        settings = read_settings(fs, directories[0])
        cache = RemoteLogMetadataConsumer(LogDirView(fs, directories), clock).catch_up()
    except (SparklogError, FileNotFoundError) as error:
        return f"the copies in remote storage, because their metadata can't be read: {error}"
    copies = [copy for key in cache.keys() for copy in cache.readable(key)]  # noqa: SIM118
    if not copies:
        return None
    size = sum(copy.size for copy in copies)
    return (
        f"{pluralize(len(copies), 'copy', 'copies')}, {pluralize(size, 'byte')} in "
        f"{'remote storage' if settings is None else settings.url}; run `sparklog tier verify`"
    )


def _repair(
    fs: FileSystem, clock: Clock, options: LogOptions, report: Verification, verifier: "_Verifier"
) -> tuple[list[str], str | None]:
    parts = {
        key: replace(checked.part, end=checked.end) for key, checked in verifier.checked.items()
    }
    left = [finding for finding in report.findings if not finding.repaired]
    repair = LogRepair(fs, clock, options, verifier.log_dir_state, parts, left)
    refused = repair.run()
    return repair.done, refused


def _after_repair(
    before: Verification, after: Verification, done: list[str], refused: str | None
) -> Verification:
    """Return the report after a repair. It includes the former findings, marked as repaired."""
    left = {finding.place for finding in after.findings}
    repaired = [
        replace(finding, repaired=True)
        for finding in before.findings
        if finding.place not in left and finding.fix is not None
    ]
    after.findings = ordered([*after.findings, *repaired])
    after.done, after.refused = [*before.done, *done], refused
    return after


class _Verifier:
    """A verification of log dirs. Repeats checks while a writer changes files."""

    def __init__(
        self,
        fs: FileSystem,
        directories: list[str],
        options: LogOptions,
        threads: int,
        progress: Progress | None,
    ) -> None:
        self._fs, self._directories, self._options = fs, directories, options
        self._threads, self._progress = threads, progress
        self._checkpoints: Checkpoints = {}
        self._appends: dict[TopicPartition, Appends] = {}
        self.checked: dict[TopicPartition, Checked] = {}
        self.log_dir_state: LogDirState

    def run(self) -> Verification:
        """Verify the log. Checks partitions with findings again if the log is being written."""
        suspects: set[TopicPartition] | None = None
        for look in range(LOOKS_MAX):
            if look:
                pause(PAUSE_MS)
            before = {f.place for c in self.checked.values() for f in c.out.found}
            general, keys = self._read_until_stable()
            self._appends = self.log_dir_state.appends_by_partition()
            self._check_all(keys, suspects)
            if look:  # only findings of every check count: a writer changed the others since
                for key in self.checked.keys() & (suspects or set()):
                    out = self.checked[key].out
                    out.found = [f for f in out.found if f.severity not in BAD or f.place in before]
            suspects = {key for key, c in self.checked.items() if _is_suspect(c.out)}
            # Without a running writer the files do not change, so a second look finds the same.
            if not (self.log_dir_state.situation.is_live and suspects):
                break
        log_dir_state = self.log_dir_state
        if log_dir_state.situation.is_ours:
            for group in GroupFiles(self._fs, self._directories[0]).read_all():
                if isinstance(group.error, DataCorruptionError):
                    general.add(Severity.DAMAGE, group.path, group.error.reason)
            check_remote_settings(self._fs, log_dir_state, general)
            check_known_copies(self._fs, log_dir_state, general)
        else:
            ends = {key: checked.end for key, checked in self.checked.items()}
            check_checkpoints(log_dir_state, self._checkpoints, ends, general)
        deleted = log_dir_state.deleted_paths()
        for _, directory in log_dir_state.numbered:
            if self._fs.is_dir(directory):
                check_log_dir(
                    self._fs, directory, log_dir_state.situation, general, deleted=deleted
                )
        # A service that runs may be removing the directories of deleted topics at this moment.
        if not log_dir_state.situation.is_live:
            self._check_deleted(deleted, general)
        return self._report(general)

    def _check_deleted(self, deleted: Mapping[str, str], general: Findings) -> None:
        """Report missing directories of deleted topics that could otherwise be undeleted."""
        for path, topic in deleted.items():
            if not self._fs.is_dir(path):
                general.add(
                    Severity.WARNING, path,
                    f"topic {topic} was deleted, and can't be undeleted: this directory is missing",
                )  # fmt: skip

    def _read_until_stable(self) -> tuple[Findings, list[TopicPartition]]:
        """Read all small files of the log, again and again while a writer changes the files."""
        for look in range(LOOKS_MAX):
            if look:
                pause(PAUSE_MS)
            general = Findings()
            keys = self._read(general)
            # Without a running writer the files do not change, so a second look finds the same.
            if not (self.log_dir_state.situation.is_live and _is_suspect(general)):
                break
        return general, keys

    def _read(self, general: Findings) -> list[TopicPartition]:
        """Read listing, checkpoints and ledger in this order, so that each is newer than before."""
        fs = self._fs
        self.log_dir_state = log_dir_state = LogDirState.read(fs, self._directories)
        self._checkpoints = read_checkpoints(fs, log_dir_state, general)
        read_ledger(fs, log_dir_state, general)
        keys = self._keys(general)
        if log_dir_state.situation.is_ours and log_dir_state.state is not None:
            ends = {**log_dir_state.state.ends, LEDGER: log_dir_state.ledger_end}
            check_checkpoints(log_dir_state, self._checkpoints, ends, general)
        return keys

    def _check_all(self, keys: list[TopicPartition], suspects: set[TopicPartition] | None) -> None:
        """Check all partitions, or `suspects` and new partitions."""
        before = self.checked
        wanted = [key for key in keys if suspects is None or key in suspects or key not in before]
        with ThreadPoolExecutor(self._threads, thread_name_prefix="sparklog-verify") as pool:
            for number, checked in enumerate(pool.map(self._check, wanted), 1):
                before[checked.part.key] = checked
                if self._progress is not None:
                    self._progress(number, len(wanted))
        self.checked = {key: before[key] for key in keys}

    def _keys(self, general: Findings) -> list[TopicPartition]:
        """Return the partitions to check; report missing partitions."""
        log_dir_state, keys = self.log_dir_state, []
        known = set() if log_dir_state.state is None else set(log_dir_state.state.ends)
        for key in sorted(log_dir_state.found):
            if (
                key in known
                or key == LEDGER
                or not log_dir_state.situation.is_ours
                or log_dir_state.state is None
            ):
                keys.append(key)
            elif why := self._why_foreign(key):
                path = log_dir_state.path(key)
                general.add(Severity.DAMAGE, path, not_of_log(path, why, key).reason)
            elif log_dir_state.situation is Situation.CLOSED:
                what = (
                    "the ledger does not contain this partition; the next open adds it"
                    if is_partition(self._fs, log_dir_state.path(key))
                    else "the directory is not a partition, but its name makes brokers load it"
                )
                general.add(Severity.WARNING, log_dir_state.path(key), what)
            elif log_dir_state.situation is Situation.CRASHED:
                general.add(
                    Severity.LEFTOVER,
                    log_dir_state.path(key),
                    "the directory belongs to an interrupted step; the next open completes or "
                    "undoes the step",
                )
        missing = known - log_dir_state.found.keys()
        # A broker has deleted partitions that are in no available log dir.
        if not log_dir_state.situation.is_ours:
            missing = {key for key in missing if log_dir_state.why_absent(key)}
        self._note_missing(missing, general)
        return keys

    def _why_foreign(self, key: TopicPartition) -> str | None:
        """Return why a directory that is not in the ledger belongs to another partition."""
        with suppress(SparklogError, OSError):
            found = stored_metadata(self._fs, self.log_dir_state.path(key))
            return why_foreign(found, key, None)
        return None

    def _note_missing(self, missing: set[TopicPartition], general: Findings) -> None:
        state = self.log_dir_state.state
        assert state is not None or not missing
        for key in sorted(missing):
            assert state is not None
            start, end = state.starts.get(key, 0), state.ends[key]
            why = self.log_dir_state.why_absent(key) or "its directory is missing"
            general.add(
                Severity.DAMAGE if end > start else Severity.DIFFERENCE,
                self.log_dir_state.path(key),
                offline_error("", why, start, end).reason,
                first=start,
                end=end,
            )

    def _check(self, key: TopicPartition) -> Checked:
        log_dir_state = self.log_dir_state
        part = expected_partition(self._fs, log_dir_state, self._checkpoints, key)
        topic = None if log_dir_state.state is None else log_dir_state.state.topics.get(key.topic)
        topic_id = topic.id if topic is not None and log_dir_state.situation.is_ours else None
        check = PartitionCheck(
            self._fs,
            part,
            topic_id=topic_id,
            expiration_ms=self._options.producer_id_expiration_ms,
            appends=self._appends,
        )
        try:
            checked = check.run()
        except FileNotFoundError as error:
            checked = check.result
            checked.out.add(
                Severity.DIFFERENCE,
                error.filename or part.path,
                "the file was deleted during the check",
            )
        if key == LEDGER:  # the ledger's own repair handles all of its damage
            checked.out.found = [
                replace(f, fix=Fix(FixKind.COMMIT_LEDGER, f.file))
                if f.severity is Severity.DAMAGE and f.fix is None else f
                for f in checked.out.found
            ]  # fmt: skip
        return checked

    def _report(self, general: Findings) -> Verification:
        counted = [c for key, c in self.checked.items() if key.topic not in INTERNAL]
        batches = topic_figures((c.part.topic, c.batches) for c in counted)
        # Reversed, so that the first partition of a topic gives the path.
        places = {c.part.topic: c.part.path for c in reversed(counted)}
        found = [*general.found, *small_segments(self.checked.values())]
        found += small_batch_warnings(batches, places)
        for checked in self.checked.values():
            found += checked.out.found
        return Verification(
            directories=self._directories,
            situation=str(self.log_dir_state.situation),
            findings=ordered(with_rebuild(found, self.log_dir_state.home)),
            partitions=len(counted),
            segments=sum(c.segments for c in counted),
            bytes=sum(c.bytes for c in counted),
            batches=batches,
        )


def _is_suspect(out: Findings) -> bool:
    return any(f.severity in BAD for f in out.found)
