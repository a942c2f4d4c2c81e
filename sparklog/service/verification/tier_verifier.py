"""`verify_tier`: checks that a log's remote copies exist and are complete.

Listings show missing and truncated copies. With `deep`, every byte is read and compared with
checksums. The only change is that damage which the service can repair is recorded for it.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

from sparklog.clock import Clock, monotonic_ms, system_clock
from sparklog.common import TopicIdPartition, TopicPartition
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.due_segments import Tier
from sparklog.logdir.paths import split_path
from sparklog.logdir.segment_files import segment_bases
from sparklog.logdir.view import LogDirView
from sparklog.progress import Progress, shows_progress
from sparklog.service.verification.findings import (
    Finding,
    Findings,
    Severity,
    Verification,
    ordered,
)
from sparklog.tiered.archive.bucket import group, listed_segments, log_start
from sparklog.tiered.archive.opening import Path, archive_url, no_archive
from sparklog.tiered.copying.content_check import faults_of, note_damaged
from sparklog.tiered.copying.orphans import is_lost
from sparklog.tiered.copying.plan import copied_ranges
from sparklog.tiered.encryption.envelope import stored_size
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import log_object, manifest_object
from sparklog.tiered.layout.object_names import Directory, parse_manifest
from sparklog.tiered.layout.topic_owners import is_owned
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.reading.store_retry import StoreRetry
from sparklog.tiered.remote_log_metadata.metadata_cache import RemoteLogMetadataCache
from sparklog.tiered.remote_log_metadata.topic import METADATA, RemoteLogMetadataConsumer
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState
from sparklog.tiered.settings import read_settings, settings_missing
from sparklog.tiered.target import open_store

T = TypeVar("T")

_GONE: Final = "restore it from a copy of the bucket"
_ANEW: Final = "local segments hold its records: the service's next round copies them again"
_NOT_NOTED: Final = (
    "local segments hold its records, but this is not recorded for the service: the store doesn't "
    "know this log (is it another store?), or the log dir can't be written to. Run `sparklog tier "
    "verify` again once that is corrected; the service's next round then copies them again"
)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A copy that readers rely on. `held` means that local segments contain the same records."""

    copy: RemoteSegment
    held: bool
    first: int  # the first of its offsets that readers may read


@shows_progress("verifying copies")
def verify_tier(
    path: Path,
    *,
    deep: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    options: RemoteOptions | None = None,
    threads: int = 4,
    progress: Progress | None = None,
    store: Store | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Verification:
    """Check the copies of the log at `path`, or all copies of an archive by its URL.

    Both objects of each copy must exist, logs must have their recorded size, and copies must cover
    all offsets from the log start to the first local segment. With `deep`, all bytes must match the
    manifests' checksums; with the keyring also the indexes of encrypted copies.

    A damaged copy of records that are also in local segments is recorded in the log dir
    (`sparklog.damaged-<segment id>`): retention no longer relies on it, and the service's next
    round copies the segments again. This is the only change.

    Args:
        path: The log, or the URL of an archive.
        deep: Whether to read all bytes.
        storage_options: Options of fsspec for the store.
        options: Options for reading, such as the keyring.
        threads: The number of copies that are read at the same time, with `deep`.
        progress: Called with the number of checked copies, and the total.
        store: A store instead of the URL's, for tests.
        fs: The file system.
        clock: The current time.

    Returns:
        The report. `report.ok` is False if a copy is missing or damaged.

    Raises:
        InvalidRequestError: There is no remote storage.
        DataCorruptionError: The log has copies, but their metadata or the store's URL can't be
            read.
        StorageUnavailableError: The store does not answer.

    Cost:
        A listing of each partition; two requests for a copy that isn't listed; with `deep` all
        bytes.
    """
    options, began = options or RemoteOptions(), monotonic_ms()
    url, note = archive_url(path, fs), lambda copy, what: True
    if url is None:
        settings = read_settings(fs, split_path(path)[0])
        if settings is None:
            if LogDirView(fs, split_path(path)).topic_id(*METADATA) is not None:
                raise settings_missing(split_path(path)[0])
            raise InvalidRequestError(
                f"{path} has no remote storage, so it has no copies to verify", path=str(path)
            )
        store = store or open_store(settings.url, storage_options)
        note = _DamageRecorder(fs, split_path(path)[0], store, settings.log_id)
    else:
        store = store or open_store(url, storage_options)
    keys = Keyring.load(options.remote_keyring) if options.remote_keyring else None
    check = _TierCheck(store, keys, StoreRetry(options.patience_ms(following=False)), note)
    if url is not None:
        wanted = check.check_archive()
    else:
        wanted = check.check_log(fs, clock, split_path(path))
    if url is not None and not check.partitions:
        raise no_archive(url)
    if deep:
        with ThreadPoolExecutor(threads, thread_name_prefix="sparklog-verify") as pool:
            for number, _ in enumerate(pool.map(check.read, wanted), 1):
                if progress is not None:
                    progress(number, len(wanted))
    return Verification(
        directories=[store.url],
        situation="remote storage, every byte" if deep else "remote storage, by its listing",
        findings=ordered(check.found),
        partitions=check.partitions,
        segments=check.segments,
        bytes=check.bytes,
        took_ms=monotonic_ms() - began,
    )


class _DamageRecorder:
    """Records damaged copies, if the store contains the log's owner object.

    Without the owner object it is probably another store.
    """

    def __init__(self, fs: FileSystem, home: str, store: Store, log_id: str) -> None:
        self._fs, self._home, self._store, self._log_id = fs, home, store, log_id

    def __call__(self, copy: RemoteSegment, what: str) -> bool:
        try:
            if not self._is_right_store:
                return False
            note_damaged(self._fs, self._home, copy.id, what)
        except StorageUnavailableError:
            return False
        return True

    @cached_property
    def _is_right_store(self) -> bool:
        return not self._log_id or is_owned(self._store, self._log_id)


class _TierCheck:
    """A check of the copies in a store. `found` has the findings."""

    def __init__(
        self,
        store: Store,
        keys: Keyring | None,
        retry: StoreRetry,
        note: Callable[[RemoteSegment, str], bool] = lambda copy, what: True,
    ) -> None:
        """Create a check. `note` records a damaged copy, and returns whether this was possible."""
        self._store, self._keys, self._retry, self._note = store, keys, retry, note
        self.found: list[Finding] = []
        self.partitions = self.segments = self.bytes = 0

    def check_log(self, fs: FileSystem, clock: Clock, directories: list[str]) -> list[_Wanted]:
        """Compare a log's metadata with listings. Return the copies that exist."""
        view, whole = LogDirView(fs, directories), []
        cache = RemoteLogMetadataConsumer(LogDirView(fs, directories), clock).catch_up()
        for info in view.topics().values():
            for p, directory in sorted(info.dirs.items()):
                where = Directory(info.name, p, info.id)
                if (
                    not cache.all(TopicIdPartition(info.id, p))
                    and not info.config.remote_storage_enable
                ):
                    continue
                key = TopicPartition(info.name, p)
                start, end = view.spans([key])[key]
                try:
                    local = next(iter(segment_bases(fs, directory)), end)
                except FileNotFoundError:  # offline: the first local offset is unknown
                    local = None
                whole += self._partition(cache, where, start, local)
        return whole

    def _partition(
        self, cache: RemoteLogMetadataCache, where: Directory, start: int, local: int | None
    ) -> list[_Wanted]:
        """Compare a partition's copies with a listing. For an offline partition `local` is None."""
        key = TopicIdPartition(where.topic_id, where.partition)
        live = [s for s in cache.all(key) if s.state is SegmentState.COPY_FINISHED]
        live = [s for s in live if s.end > start]
        if not live and (local is None or local <= start):
            return []
        self.partitions += 1
        out = Findings(where.topic, where.partition)
        names = {s.id for s in cache.readable(key)}
        prefix = where.prefix
        listed = {o.name: o.size for o in self._retried(lambda: self._store.list(prefix))}
        whole = []
        for copy in live:
            first = max(copy.base, start)
            held = local is not None and first >= local
            one = _Wanted(copy, held or copy.id not in names, first)
            if self._is_whole(one, listed, out):
                whole.append(one)
        known = Tier(copied_ranges(s for s in live if s.id in names))
        if local is not None and not known.holds(start, local):
            out.add(
                Severity.DAMAGE,
                f"{self._store.url}/{prefix}",
                "no copy holds all offsets below the first local segment; `sparklog tier rebuild` "
                f"finds copies that the log has forgotten, else {_GONE}",
                first=start,
                end=local,
            )
        self.found += out.found
        return whole

    def _is_whole(self, one: _Wanted, listed: Mapping[str, int], out: Findings) -> bool:
        copy, name = one.copy, log_object(one.copy)
        self.segments += 1
        self.bytes += copy.size
        missing = [n for n in (manifest_object(copy), name) if n not in listed]
        lost = len(missing) > 0 and self._retried(lambda: is_lost(self._store, copy))
        if lost:  # confirmed by a GET, because a listing may lag behind
            for gone in missing:
                self._add(out, one, gone, "it is missing")
            return False
        size = listed.get(name, copy.size)
        if size not in (copy.size, stored_size(copy.size)):
            what = f"{size} bytes, {copy.size} were copied"
            self._add(out, one, name, what, min(size, copy.size))
            return False
        return True

    def _add(
        self, out: Findings, one: _Wanted, name: str, what: str, position: int | None = None
    ) -> None:
        severity = Severity.DIFFERENCE if one.held else Severity.DAMAGE
        cure = _GONE if not one.held else _ANEW if self._note(one.copy, what) else _NOT_NOTED
        out.add(
            severity, f"{self._store.url}/{name}", f"{what}; {cure}",
            position=position, first=one.first, end=one.copy.end,
        )  # fmt: skip

    def check_archive(self) -> list[_Wanted]:
        """Compare an archive's manifests with its logs. Return the copies that exist."""
        whole: list[_Wanted] = []
        for directory, objects in group(self._retried(self._store.list)).items():
            out = Findings(directory.topic, directory.partition)
            copies, start = listed_segments(directory, objects), log_start(objects)
            self.partitions += 1
            self.segments += len(copies)
            self.bytes += sum(copy.size for copy in copies)
            bases = {(copy.base, copy.id) for copy in copies}
            for one in objects:
                listed = parse_manifest(one.name)
                if listed is not None and (listed.base, listed.id) not in bases:
                    out.add(
                        Severity.DAMAGE,
                        f"{self._store.url}/{directory.prefix}{one.name}",
                        f"the log that it describes is missing; {_GONE}",
                        first=listed.base,
                        end=listed.end,
                    )
            self._holes(directory, copies, out)
            whole += [_Wanted(copy, False, max(copy.base, start)) for copy in copies]
            self.found += out.found
        return whole

    def _holes(self, directory: Directory, copies: Sequence[RemoteSegment], out: Findings) -> None:
        held = copied_ranges(copies)
        for (_, end), (base, _) in itertools.pairwise(held):
            out.add(
                Severity.DAMAGE,
                f"{self._store.url}/{directory.prefix}",
                f"no copy holds these offsets; {_GONE}",
                first=end,
                end=base,
            )

    def read(self, one: _Wanted) -> None:
        """Read all bytes of a copy. Thread-safe."""
        out = Findings(one.copy.topic, one.copy.partition)
        ask: Callable[[Callable[[], bytes]], bytes] = self._retried
        try:
            for name, what, position in faults_of(self._store, one.copy, self._keys, ask=ask):
                self._add(out, one, name, what, position)
        except InvalidRequestError as error:  # the keyring lacks its key
            file = f"{self._store.url}/{manifest_object(one.copy)}"
            out.add(Severity.DAMAGE, file, str(error), first=one.first, end=one.copy.end)
        self.found += out.found

    def _retried(self, ask: Callable[[], T]) -> T:
        return self._retry.call(ask)
