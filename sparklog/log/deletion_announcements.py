"""The warning before retention's first deletion in a topic: what goes, why, and how to keep it.

Retention counts record time, so that a backfill of old events may be due at once. So nothing goes
in the round that finds it due: that one warns, and notes it with the log
(`AnnouncementStore`); the next one
deletes, whichever process runs it. From then on the topic's retention goes by itself.
"""

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from sparklog.common import TopicPartition
from sparklog.log.due_segments import LOG_START
from sparklog.pluralize import pluralize

_MUTEX: Final = threading.Lock()  # segments and copies are in one file
_LOGGER: Final = logging.getLogger("sparklog.service")


class DueSegment(Protocol):
    """A segment, or its copy, that is due: offsets [base, end)."""

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
"""{what: {topic id: whether something went since}}"""


class AnnouncementStore(Protocol):
    """Where a home notes what was announced."""

    def read(self) -> Announced:
        """Return what is noted; nothing if it can't be read, so that all is announced once more."""

    def write(self, found: Announced) -> None:
        """Note it. Where that fails only this process knows. Raises nothing."""


class DeletionAnnouncements:
    """Knows the topics whose first deletion was announced, of `what` (segments, copies)."""

    def __init__(
        self, notes: AnnouncementStore, what: str = "segment", plural: str = "segments"
    ) -> None:
        self._notes = notes
        self._what, self._plural = what, plural
        self._known: dict[str, bool] = {}  # topic id: whether something went since

    def unannounced(
        self,
        due: Mapping[TopicPartition, Sequence[DueSegment]],
        ids: Mapping[str, str],
        *,
        sizes: Mapping[str, int] = MappingProxyType({}),
        unsure: Collection[str] = (),
        now: bool = False,
        dry_run: bool = False,
    ) -> set[str]:
        """Return the topics where nothing may go yet; warns of what is due there.

        What lies below the log start is gone for readers already, and no config keeps it.
        Args:
            due: what goes for good. ids: {topic: its id} of all topics.
            sizes: {topic: bytes that it holds}, to say how much of it goes.
            unsure: topics of which it can't be told whether anything is due.
            now: somebody asked for the deletion, so it isn't put off. dry_run: nothing is noted.
        """
        wanted: dict[str, dict[TopicPartition, list[DueSegment]]] = {}
        for key, gone in due.items():
            kept = [one for one in gone if one.rule != LOG_START]
            if kept and key.topic in ids:
                wanted.setdefault(key.topic, {})[key] = kept
        with _MUTEX:
            file = self._notes.read()
            before = file.get(self._what, {}) | self._known
            # What was announced and is no longer due was kept: another time it is told again.
            looked = {ids[name] for name in [*wanted, *unsure] if name in ids}
            live = set(ids.values())
            known = {i: g for i, g in before.items() if i in live and (g or i in looked)}
            fresh = {name for name in wanted if ids[name] not in known}
            for name in sorted(fresh):
                self._warn(wanted[name], sizes.get(name, 0), now=now, dry_run=dry_run)
            if not dry_run:
                for name in wanted:
                    known[ids[name]] = now or name not in fresh
                self._known = known
                if known != file.get(self._what, {}):
                    self._notes.write(file | {self._what: known})
            if now:
                return set()
            return fresh | {name for name in unsure if name in ids and ids[name] not in known}

    def _warn(
        self,
        due: Mapping[TopicPartition, Sequence[DueSegment]],
        size_bytes: int,
        *,
        now: bool,
        dry_run: bool,
    ) -> None:
        share = ""
        if size_bytes > 0:
            gone_bytes = sum(one.bytes for gone in due.values() for one in gone)
            share = f" ({min(100, 100 * gone_bytes // size_bytes)}% of the topic goes)"
        when = "would be deleted" if dry_run else "are deleted now" if now else "are due"
        next_round = "" if dry_run or now else " The next round deletes them."
        for key, gone in due.items():
            first, last = gone[0], gone[-1]
            _LOGGER.log(
                logging.INFO if dry_run else logging.WARNING,
                "%s-%d: offsets [%d, %d) %s, %s of %d bytes%s; the first by %s: %s.%s "
                "To keep them, set %s=-1 on the topic",
                *key, first.base, last.end, when,
                pluralize(len(gone), self._what, self._plural),
                sum(one.bytes for one in gone), share,
                first.rule, first.why, next_round, first.rule,
            )  # fmt: skip
