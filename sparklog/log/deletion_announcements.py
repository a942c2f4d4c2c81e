"""Warn before retention first deletes segments of a topic, with the reason and the remedy.

Retention uses record timestamps, so segments of a backfill can be due at once. The round that first
finds segments due therefore only warns, and stores the announcement with the log
(`AnnouncementStore`). The next round deletes them, in whichever process it runs. Later deletions in
the topic are not announced.
"""

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from sparklog.common import TopicPartition
from sparklog.log.due_segments import LOG_START
from sparklog.pluralize import pluralize
from sparklog.storage.round_report import Report

_MUTEX: Final = threading.Lock()  # announcements of segments and copies share a file
_LOGGER: Final = logging.getLogger("sparklog.service")


class DueSegment(Protocol):
    """A segment, or its remote copy, that is due for deletion.

    Attributes:
        base: The first offset.
        end: The offset after the last offset.
        bytes: The size.
        rule: The name of the rule by which it is due, such as retention.ms.
        why: How the segment exceeds the limit, for messages.
    """

    @property
    def base(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def rule(self) -> str: ...
    @property
    def why(self) -> str: ...


Announced = dict[str, dict[str, bool]]
"""{what: {topic id: whether segments were deleted since the announcement}}"""


class AnnouncementStore(Protocol):
    """Stores the announcements of a log; implemented by each home."""

    def read(self) -> Announced:
        """Return the stored announcements.

        Returns {} if they can't be read, so that topics are announced again.
        """

    def write(self, found: Announced) -> None:
        """Store the announcements.

        A failure is not raised: in this case only this process knows the announcements.
        """


class DeletionAnnouncements:
    """Knows the topics for which a first deletion was announced, and announces others.

    `what` and `plural` name what is deleted: "segment" or "copy".
    """

    def __init__(
        self, notes: AnnouncementStore, what: str = "segment", plural: str = "segments"
    ) -> None:
        self._notes = notes
        self._what, self._plural = what, plural
        self._known: dict[str, bool] = {}  # topic id -> whether segments were deleted since

    def unannounced(
        self,
        due: Mapping[TopicPartition, Sequence[DueSegment]],
        ids: Mapping[str, str],
        report: Report,
        *,
        sizes: Mapping[str, int] = MappingProxyType({}),
        unsure: Collection[str] = (),
        at_once: bool = False,
    ) -> set[str]:
        """Return the topics in which no segment may be deleted yet, and warn of the due segments.

        Segments below the log start offset are not announced, because they can't be read and no
        config would retain them.

        Args:
            due: Segments to be deleted for good.
            ids: {topic: topic id} of all topics.
            report: Gets a note for each partition with announced segments. In a dry run, the
                announcements are not stored.
            sizes: {topic: size in bytes}, for the share that is deleted.
            unsure: Topics for which the due segments can't be determined.
            at_once: A user requested the deletion, so it is not postponed.
        """
        wanted: dict[str, dict[TopicPartition, list[DueSegment]]] = {}
        for key, segments in due.items():
            announced = [segment for segment in segments if segment.rule != LOG_START]
            if announced and key.topic in ids:
                wanted.setdefault(key.topic, {})[key] = announced
        with _MUTEX:
            file = self._notes.read()
            # If the store can't be written, only this process knows its announcements.
            before = file.get(self._what, {}) | self._known
            # Segments that were announced and are no longer due were kept: announce them again.
            checked = {ids[name] for name in [*wanted, *unsure] if name in ids}
            live = set(ids.values())
            known = {i: g for i, g in before.items() if i in live and (g or i in checked)}
            fresh = {name for name in wanted if ids[name] not in known}
            for name in sorted(fresh):
                self._warn(wanted[name], sizes.get(name, 0), report, at_once=at_once)
            if not report.dry_run:
                for name in wanted:
                    known[ids[name]] = at_once or name not in fresh
                self._known = known
                if known != file.get(self._what, {}):
                    self._notes.write(file | {self._what: known})
            if at_once:
                return set()
            return fresh | {name for name in unsure if name in ids and ids[name] not in known}

    def _warn(
        self,
        due: Mapping[TopicPartition, Sequence[DueSegment]],
        size_bytes: int,
        report: Report,
        *,
        at_once: bool,
    ) -> None:
        share = ""
        if size_bytes > 0:
            gone_bytes = sum(segment.bytes for segments in due.values() for segment in segments)
            share = f" ({min(100, 100 * gone_bytes // size_bytes)}% of the topic)"
        is_dry, is_postponed = report.dry_run, not (report.dry_run or at_once)
        when = "are due" if is_postponed else "would be deleted" if is_dry else "are deleted now"
        next_round = " The next round deletes them." if is_postponed else ""
        for key, segments in due.items():
            first, last = segments[0], segments[-1]
            count = pluralize(len(segments), self._what, self._plural)
            if is_postponed:
                report.notes.append(f"{key}: {count} due; the next round deletes them")
            _LOGGER.log(
                logging.INFO if is_dry else logging.WARNING,
                "%s-%d: offsets [%d, %d) %s, %s of %d bytes%s; the first by %s: %s.%s "
                "To keep them, set %s=-1 on the topic",
                *key, first.base, last.end, when, count,
                sum(segment.bytes for segment in segments), share,
                first.rule, first.why, next_round, first.rule,
            )  # fmt: skip
