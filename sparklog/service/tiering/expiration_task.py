"""The expiration task of a round: log starts, expired copies, deleted topics, orphans.

Source: RemoteLogManager.RLMExpirationTask, stopPartitions (Kafka 4.1).
"""

import contextlib
import logging
from collections.abc import Mapping
from typing import Final

from sparklog.common import TopicIdPartition, TopicPartition
from sparklog.errors import DataCorruptionError, UnsupportedVersionError
from sparklog.log.deletion_announcements import DeletionAnnouncements
from sparklog.log.due_segments import Tier
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.retention.segment_deletion import raise_starts
from sparklog.pluralize import pluralize
from sparklog.service.announcement_file import AnnouncementFile
from sparklog.service.tiering.remote_log import RemoteLog, TieredPartition
from sparklog.storage.log_state import LogState
from sparklog.storage.round_report import Removed, Report
from sparklog.storage.segment_store import SegmentStore
from sparklog.tiered.copying import orphans
from sparklog.tiered.copying.plan import (
    copied_ranges,
    expired_segments,
    unreferenced_segments,
    valid_copies,
)
from sparklog.tiered.layout.manifest import MANIFEST_BYTES_MAX, directory_of, log_object, parse
from sparklog.tiered.layout.object_names import (
    Directory,
    log_start_name,
    parse_log_start,
    parse_manifest,
    remote_log_name,
)
from sparklog.tiered.object_store.store import Store, StoredObject
from sparklog.tiered.remote_log_metadata.records import PartitionDeleteRecord, PartitionDeleteState
from sparklog.tiered.remote_log_metadata.topic import publish_deleted_partitions
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

_LOGGER: Final = logging.getLogger("sparklog.service")


class ExpirationTask:
    """Deletes expired copies, and objects that no log refers to, from the bucket."""

    def __init__(
        self, remote_log: RemoteLog, store: Store, segment_store: SegmentStore[RemoteSegment]
    ) -> None:
        self._remote_log, self._store, self._segment_store = remote_log, store, segment_store
        self._marked: dict[TopicIdPartition, int] = {}
        commits = remote_log.commits
        self._announcements = DeletionAnnouncements(
            AnnouncementFile(commits.fs, commits.home), "copy", "copies"
        )

    # --- retention --------------------------------------------------------------------------------

    def expire(
        self,
        known: dict[TopicPartition, TieredPartition],
        floors: Mapping[TopicPartition, int],
        report: Report,
        *,
        at_once: bool = False,
    ) -> None:
        """Raise log starts past expired copies, then delete the copies below the log start.

        A topic's first deletion is announced, and done in the next round, unless `at_once`.
        """
        starts: dict[TopicPartition, int] = {}
        gone: dict[TopicPartition, list[Removed]] = {}
        for key, one in known.items():
            config = one.place.config
            if not config.remote_storage_enable:
                if config.remote_log_delete_on_disable:
                    starts[key] = one.place.local_start
                continue
            with contextlib.suppress(FileNotFoundError):
                due = expired_segments(
                    one.valid_copies,
                    self._remote_log.segments(key, one.place),
                    config,
                    log_start=one.place.log_start,
                    now_ms=report.time_ms,
                    floor=floors.get(key),
                )
                if due.expired:
                    gone[key] = [
                        Removed(
                            topic=key.topic,
                            partition=key.partition,
                            base=e.base,
                            end=e.end,
                            bytes=e.bytes,
                            rule=e.rule,
                            why=e.why,
                        )
                        for e in due.expired
                    ]
                    starts[key] = due.log_start
        ids = {key.topic: one.topic_id for key, one in known.items()}
        # A mistake in a topic's config must not delete everything at once: the user has a round to
        # notice the announcement.
        held = self._announcements.unannounced(gone, ids, report, at_once=at_once)
        for key in [] if report.dry_run else [key for key in gone if key.topic in held]:
            del gone[key], starts[key]
        report.removed += [copy for copies in gone.values() for copy in copies]
        if self._remote_log.preview is not None:
            self._remote_log.preview.starts = starts
            self._delete(known, report)
            return
        # The log start first: after a crash in between, the next round deletes the copies. In the
        # other order, readers would look for copies that no longer exist.
        if starts:
            self._remote_log.lease.check()
            raise_starts(self._remote_log.commits, starts)
        self._delete(known, report)
        self._mark_starts(known)

    def _mark_starts(self, known: dict[TopicPartition, TieredPartition]) -> None:
        """Publish each log start that is within a remote segment in the bucket.

        A reader of the bucket as an archive, without the log, learns the log start from this
        object.
        """
        # The log start is part of an object's name, so a listing shows it without a GET. Copies
        # completely below the log start are deleted, and need no such object.
        starts = self._remote_log.log_starts(known)
        for key, one in known.items():
            start = starts[key]
            within = any(copy.base < start < copy.end for copy in one.valid_copies)
            if not within or self._marked.get(one.id) == start:
                continue
            self._remote_log.lease.check()
            prefix = Directory(key.topic, key.partition, one.topic_id).prefix
            name = prefix + log_start_name(start)
            self._store.put(name, b"")
            older = [
                entry.name
                for entry in self._store.list(prefix)
                if parse_log_start(entry.name.removeprefix(prefix)) not in (None, start)
            ]
            self._store.delete(older)
            self._marked[one.id] = start

    def _delete(self, known: dict[TopicPartition, TieredPartition], report: Report) -> None:
        """Delete unreferenced copies, judged by the current log starts."""
        reported = {(r.topic, r.partition, r.base, r.end) for r in report.removed}
        deletable, starts = list[RemoteSegment](), self._remote_log.log_starts(known)
        preview = self._remote_log.preview
        if preview is not None:
            starts = {key: max(at, preview.starts.get(key, 0)) for key, at in starts.items()}
        by_id = {one.id: (key, one) for key, one in known.items()}
        with self._remote_log.locked_cache() as cache:
            for remote_key in list(cache.keys()):
                copies = cache.all(remote_key)
                if remote_key in by_id:
                    key, one = by_id[remote_key]
                    deletable += _deletable(one, copies, starts[key])
        for gone in deletable if preview is not None else self._deleted(deletable):
            if (gone.topic, gone.partition, gone.base, gone.end) not in reported:
                report.removed.append(_removed(gone, "log.start.offset", "unreferenced"))

    def _deleted(self, deletable: list[RemoteSegment]) -> list[RemoteSegment]:
        return self._remote_log.delete(self._segment_store, deletable)

    # --- deleted topics ---------------------------------------------------------------------------

    def remove_deleted_topics(self, report: Report) -> None:
        """Delete all objects of deleted topics, and publish that they are deleted."""
        commits = self._remote_log.commits
        with commits.exclusive():
            live = ids_with_records(commits.state)
        with self._remote_log.locked_cache() as cache:
            known = [key for key in list(cache.keys()) if self._remote_log.is_ours(key.topic_id)]
            dead = {key: cache.all(key) for key in known if key.topic_id not in live}
        for (topic_id, p), copies in dead.items():
            directory = directory_of(copies[0])
            if report.dry_run:
                report.removed += [_removed(s, "topic", "its topic was deleted") for s in copies]
                continue
            record = PartitionDeleteRecord(
                topic=copies[0].topic,
                topic_id=topic_id,
                partition=p,
                state=PartitionDeleteState.FINISHED,
                time_ms=self._remote_log.clock(),
            )
            # Recorded before the objects are deleted. After a crash in between, the reconciliation
            # deletes the objects that are left.
            self._remote_log.lease.check()
            publish_deleted_partitions(commits, self._remote_log.clock, [record])
            gone = self._deleted(copies)
            report.removed += [_removed(s, "topic", "its topic was deleted") for s in gone]
            self._remove(self._store.list(directory.prefix))

    def _remove(self, objects: list[StoredObject]) -> None:
        if objects:
            self._remote_log.lease.check()
            orphans.remove(self._store, objects)

    # --- reconciling ---------------------------------------------------------------------------

    def reconcile_bucket(
        self, known: dict[TopicPartition, TieredPartition], report: Report
    ) -> None:
        """Compare the bucket with the metadata, and resolve the differences.

        An unknown copy is added to the metadata if the log needs it, because metadata may have been
        lost. A copy of another history, or past the log end, stays and is reported, because the log
        may have been restored from an older state. Other unknown objects are deleted once they are
        old. A copy with missing objects is removed from the metadata if its local segment exists,
        which is then copied again; otherwise every reconciliation reports an error.
        """
        commits = self._remote_log.commits
        with commits.exclusive():
            live = ids_with_records(commits.state)
        by_id = {one.id: one for one in known.values()}
        topics = {one.id: topic for (topic, _), one in known.items()}
        with self._remote_log.locked_cache() as cache:
            where = orphans.prefixes(cache, topics, now_ms=report.time_ms)
            snapshot = {key: cache.all(key) for key in where}
        for key, directory in where.items():
            if key.topic_id in live and key not in by_id:
                continue  # offline, so its needs are unknown; or another log's topic
            if not self._remote_log.is_ours(key.topic_id):
                continue
            found = orphans.find_orphans(
                self._store, snapshot[key], directory, now_ms=self._remote_log.clock()
            )  # fmt: skip
            one = by_id.get(key)
            kept = (
                self._take_over(one, found.unknown_manifests, report) if one is not None else set()
            )
            left = [o for o in found.orphans if o.name not in kept]
            report.orphans += [o.name for o in left]
            report.orphan_bytes += sum(o.size for o in left)
            if not report.dry_run:
                self._remove(left)
            if found.missing:
                self._forget_missing(one, found.missing, report)
        if not report.dry_run:
            self._remote_log.lease.check()
            self._store.sweep_uploads(self._remote_log.clock() - orphans.UPLOAD_MS)

    def _take_over(
        self, tiered: TieredPartition, unknown_manifests: list[StoredObject], report: Report
    ) -> set[str]:
        """Add complete copies that the log needs to the metadata. Return object names that stay."""
        held = Tier(copied_ranges(tiered.valid_copies))
        lineage = read_epochs(self._remote_log.fs, tiered.place.directory)
        wanted: list[RemoteSegment] = []
        others: list[RemoteSegment] = []
        kept: set[str] = set()
        for unknown in unknown_manifests:
            listed = parse_manifest(unknown.name.rpartition("/")[2])
            assert listed is not None
            if held.holds(max(listed.base, tiered.place.log_start), listed.end):
                continue
            try:
                raw = self._store.get(unknown.name, limit=MANIFEST_BYTES_MAX)
                manifest, _ = parse(raw, path=unknown.name)
            except FileNotFoundError:
                continue  # deleted since the listing
            except (DataCorruptionError, UnsupportedVersionError) as error:
                report.errors.append(str(error))
                prefix = unknown.name.rpartition("/")[0]
                kept |= {unknown.name, f"{prefix}/{remote_log_name(listed.base, listed.id)}"}
                continue
            segment = manifest.segment
            if manifest.name == unknown.name and not orphans.is_lost(self._store, segment):
                ours = valid_copies([segment], lineage, end=tiered.place.end)
                (wanted if ours else others).append(segment)
        if wanted:
            copies = pluralize(len(wanted), "copy", "copies")
            report.notes.append(f"{copies} found in the bucket that the metadata lacked")
            if not report.dry_run:
                self._remote_log.publish(wanted, found=True)
        if others:
            where = directory_of(others[0]).prefix
            report.notes.append(
                f"{len(others)} copies below {self._store.url}/{where} belong to another history "
                f"of this topic, or end past the log end {tiered.place.end}; they stay. If this "
                "log was restored to an earlier state, they are the only copies of records that "
                "it lost: delete them only if no log needs them"
            )
        return kept.union(*(orphans.objects_of(s) for s in (*wanted, *others)))

    def _forget_missing(
        self, one: TieredPartition | None, missing: list[RemoteSegment], report: Report
    ) -> None:
        """Remove missing copies from the metadata if local segments contain their offsets."""
        with self._remote_log.locked_cache():
            commits = self._remote_log.commits
            with commits.exclusive():
                key = TopicPartition(missing[0].topic, missing[0].partition)
                local_start = commits.state.local_start(*key)
                log_start = commits.state.starts.get(key, 0)
            safe = []
            for segment in missing:
                first = max(segment.base, log_start)
                if one is None or first >= segment.end or first >= local_start:
                    safe.append(segment)
                    continue
                report.errors.append(
                    f"{key}: offsets [{first}, {min(segment.end, local_start)}) can't be read: "
                    f"{self._store.url}/{log_object(segment)} or its manifest is missing; restore "
                    "both objects from a copy of the bucket"
                )
            if safe and not report.dry_run:
                copies = pluralize(len(safe), "copy", "copies")
                report.notes.append(f"{copies} missing in the bucket, to be copied again")
                self._deleted(safe)


def ids_with_records(state: LogState) -> set[str]:
    """Return the ids of topics with copies that stay, including topics that can be undeleted."""
    return {*(topic.id for topic in state.topics.values()), *state.deleted}


def _deletable(
    tiered: TieredPartition, copies: list[RemoteSegment], log_start: int
) -> list[RemoteSegment]:
    config = tiered.place.config
    if not config.remote_storage_enable and config.remote_log_delete_on_disable:
        return copies if log_start >= tiered.place.local_start else []
    unused = unreferenced_segments(copies, tiered.valid_copies, log_start=log_start)
    # An upload that is still running may succeed and end above the log start.
    return [s for s in unused if s.state is not SegmentState.COPY_STARTED or s.end <= log_start]


def _removed(segment: RemoteSegment, rule: str, why: str) -> Removed:
    return Removed(
        topic=segment.topic, partition=segment.partition, base=segment.base, end=segment.end,
        bytes=segment.size, rule=rule, why=why,
    )  # fmt: skip
