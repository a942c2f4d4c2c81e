"""Reset registered readers: plan the new offsets of a group, then commit them.

    plan = log.reset_reader("audit", "earliest", "flights")
    plan.execute()

Offsets outside of a partition are moved to its log start or end, with a warning. If the log was
restored since the group committed, its offset counts up to where the histories diverge. Source:
ConsumerGroupCommand.resetOffsets (Kafka 4.1), KIP-122.
"""

import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.errors import GroupNotEmptyError, InvalidRequestError, UnknownTopicError
from sparklog.log.arguments import integer, partition_numbers, refused, text, zoned
from sparklog.log.positions import Spans, offsets_for_times, to_ms
from sparklog.log.truncation_detection import LogTruncationDetector
from sparklog.pluralize import pluralize
from sparklog.storage.group_members import GroupAtWork
from sparklog.storage.group_store import Groups, check_kept
from sparklog.storage.groups import (
    GROUP,
    Committed,
    Reader,
    check_group,
    committed_by_client,
    without_partitions,
)
from sparklog.storage.view import View

Place = Literal["earliest", "latest", "current"]
Target = Place | int | datetime | timedelta
ResetTopics = str | Iterable[str] | Mapping[str, Iterable[int] | None]
AtWork = Callable[[], Mapping[str, GroupAtWork]]
_JUST_NOW_MS: Final = 5_000  # Kafka's auto.commit.interval.ms
PLACES: Final = ("earliest", "latest", "current")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOffset:
    """The new offset of a group in a partition.

    Attributes:
        topic: The name of the topic.
        partition: The number of the partition.
        before: The group's committed offset, if any.
        offset: The offset that `ResetPlan.execute` commits.
        warning: Why the offset differs from the requested position, if the two differ.

    Examples:
        >>> plan = log.reset_reader("dashboard", to="earliest", topics={"flights": [0]})
        >>> [(planned.partition, planned.before, planned.offset) for planned in plan.offsets]
        [(0, None, 0)]
    """

    topic: str
    partition: int
    before: int | None
    offset: int
    warning: str | None = None


class ReaderResets:
    """Plans and executes resets of a log's readers. Use `Log.reset_reader`."""

    def __init__(self, groups: Groups, clock: Clock, view: View, at_work: AtWork) -> None:
        """Create an object for the readers of a log.

        `at_work` returns the groups that have members now.
        """
        self._groups, self._clock, self._view, self._at_work = groups, clock, view, at_work
        self._detector = LogTruncationDetector(view)

    # --- planning ----------------------------------------------------------------------------

    def plan(
        self,
        group: str,
        to: Target | None,
        topics: ResetTopics | None,
        *,
        shift_by: int | None,
        offsets: Mapping[str, Mapping[int, int]] | None,
    ) -> "ResetPlan":
        """Return a plan with the new offsets of a group; see `Log.reset_reader`."""
        if (to is not None) + (shift_by is not None) + (offsets is not None) != 1:
            raise InvalidRequestError(
                "exactly one of the arguments `to`, `shift_by` and `offsets` must be given"
            )
        _check_target(to)
        check_group(group)
        known = self._resettable(group)
        if offsets is not None:
            if topics is not None:
                raise InvalidRequestError("`offsets` names its topics: leave out `topics`")
            keys = [TopicPartition(topic, p) for topic, by in offsets.items() for p in by]
            self._check_known(keys)
        else:
            keys = self._chosen(topics, known)
        spans = self._view.spans(keys)
        if offsets is not None:
            wanted = {key: offsets[key.topic][key.partition] for key in keys}
            planned = _clamped(wanted, known, spans)
        elif shift_by is not None:
            planned = self._shifted(group, keys, known, spans, shift_by)
        else:
            planned = self._placed(to, keys, known, spans)
        deleted = set(known) - set(keys) if topics is None and offsets is None else set()
        notes = [(
            f"{key} was deleted: the group's committed offset stays"
        ) for key in sorted(deleted)]
        return ResetPlan(self, group, tuple(planned), (*notes, *self._last_sign(group, known)))

    def _last_sign(self, group: str, known: Mapping[TopicPartition, Committed]) -> list[str]:
        """Return a warning if the group has committed just now, else an empty list.

        A Python reader, which no endpoint coordinates, may still be active.
        """
        age_ms = self._clock() - max((at.time_ms for at in known.values()), default=0)
        if age_ms >= _JUST_NOW_MS:
            return []
        return [
            f"group {group} committed {max(0, age_ms) / 1000:.1f} s ago: if a Python reader of it "
            "is still running, it continues at its own position and overwrites this one; end it "
            "first"
        ]

    def _resettable(self, group: str) -> dict[TopicPartition, Committed]:
        """Return the offsets that a group has committed.

        Raises:
            InvalidRequestError: The group is a streaming query, or the log stores no groups.
            GroupNotEmptyError: Kafka clients are members of the group.
        """
        self._check_kept()
        reader = self._groups.reader(group)
        if reader is not None and reader.kind != GROUP:
            raise query_error(reader)
        self.check_idle(group)
        return {} if reader is None else dict(reader.offsets)

    def _check_kept(self) -> None:
        check_kept(self._groups, self._view.home)

    def check_idle(self, group: str) -> None:
        """Raise GroupNotEmptyError if Kafka clients are members of a group."""
        active = self._at_work().get(group)
        if active is not None:
            hosts = ", ".join(sorted({f"{m.client_id}{m.host}" for m in active.members}))
            raise GroupNotEmptyError(
                f"Assignments can only be reset if the group '{group}' is inactive, but the "
                f"current state is {active.state}: end its "
                f"{pluralize(len(active.members), 'member')} first ({hosts})"
            )

    def _chosen(
        self, topics: ResetTopics | None, known: Mapping[TopicPartition, Committed]
    ) -> list[TopicPartition]:
        """Return the partitions that `topics` selects.

        By default these are the existing partitions in `known`, the offsets that the group has
        committed.
        """
        infos = self._view.topics()
        if topics is None:
            return sorted(
                k for k in known if k.topic in infos and k.partition in infos[k.topic].dirs
            )
        keys = []
        for topic, partitions in _named_topics(topics).items():
            if partitions is None and topic not in infos:
                raise self._unknown(topic)
            numbers = infos[topic].dirs if partitions is None else partitions
            keys += [TopicPartition(topic, p) for p in numbers]
        self._check_known(keys)
        return sorted(dict.fromkeys(keys))

    def _check_known(self, keys: Iterable[TopicPartition]) -> None:
        infos = self._view.topics()
        for topic, partition in keys:
            if topic not in infos:
                raise self._unknown(topic)
            if partition not in infos[topic].dirs:
                last = max(infos[topic].dirs, default=0)
                raise UnknownTopicError(
                    f"topic {topic} of {self._view.home} has no partition {partition}; the "
                    f"topic's partitions are 0 to {last}"
                )

    def _unknown(self, topic: str) -> UnknownTopicError:
        known = ", ".join(sorted(self._view.topics())) or "none"
        return UnknownTopicError(f"topic {topic} is not in {self._view.home}; its topics: {known}")

    def _placed(
        self,
        to: Target | None,
        keys: list[TopicPartition],
        known: Mapping[TopicPartition, Committed],
        spans: Spans,
    ) -> list[PlannedOffset]:
        if isinstance(to, datetime | timedelta):
            if isinstance(to, timedelta):
                when_ms = self._clock() - to // timedelta(milliseconds=1)
            else:
                when_ms = to_ms(to)
            return self._at_time(when_ms, keys, known, spans)
        if isinstance(to, int):
            return _clamped(dict.fromkeys(keys, to), known, spans)
        if to == "current":
            return [self._current(key, known, spans) for key in keys]
        side = 0 if to == "earliest" else 1
        return [_planned(key, known, spans[key][side]) for key in keys]

    def _at_time(
        self,
        when_ms: int,
        keys: list[TopicPartition],
        known: Mapping[TopicPartition, Committed],
        spans: Spans,
    ) -> list[PlannedOffset]:
        """Return the planned offset of each partition: the first record at or after a time.

        Without such a record, that is the end, with a warning. `known` has the committed offsets,
        and `spans` the log start and end of each partition.
        """
        planned = []
        for topic in dict.fromkeys(key.topic for key in keys):
            partitions = [key for key in keys if key.topic == topic]
            # Negative times are Kafka's special values, such as -1 for the end.
            when = dict.fromkeys((key.partition for key in partitions), max(when_ms, 0))
            offsets = offsets_for_times(
                self._view, topic, when, spans, isolation="read_uncommitted"
            )
            for key in partitions:
                at = offsets[key.partition]
                if at is not None:
                    planned.append(_planned(key, known, at))
                    continue
                end = spans[key][1]
                why = f"{key} has no record at or after this time: the position is the end, {end}"
                planned.append(_planned(key, known, end, why))
        return planned

    def _current(
        self, key: TopicPartition, known: Mapping[TopicPartition, Committed], spans: Spans
    ) -> PlannedOffset:
        start, end = spans[key]
        if key not in known:
            return _planned(key, known, end)
        at, why = self._in_history(key, known[key], (start, end))
        if why is None and at < start:
            why = (
                f"{key} begins at {start} now, and offset {at} was deleted: its reader will get "
                "an error"
            )
        return _planned(key, known, at, why)

    def _shifted(
        self,
        group: str,
        keys: list[TopicPartition],
        known: Mapping[TopicPartition, Committed],
        spans: Spans,
        shift_by: int,
    ) -> list[PlannedOffset]:
        wanted, parted = {}, {}
        for key in keys:
            if key not in known:
                raise InvalidRequestError(
                    f"Cannot shift offset for partition {key} since there is no current committed "
                    f"offset of group {group}"
                )
            base, parted[key] = self._in_history(key, known[key], spans[key])
            wanted[key] = base + shift_by
        planned = _clamped(wanted, known, spans)
        return [
            replace(
                each, warning=each.warning or parted[TopicPartition(each.topic, each.partition)]
            )
            for each in planned
        ]

    def _in_history(
        self, key: TopicPartition, at: Committed, span: tuple[int, int]
    ) -> tuple[int, str | None]:
        """Return the offset in the present log for a committed offset, and a warning or None.

        The two offsets differ if the log was restored to an earlier state since the commit.
        """
        parted = self._detector.truncated_at(key, at.offset, at.origin, span)
        if parted is None:
            return at.offset, None
        return parted, (
            f"offsets [{parted}, {at.offset}) of {key} were read in another history: the log was "
            f"restored since, so the position counts as {parted}"
        )

    # --- carrying out ------------------------------------------------------------------------

    def execute(self, plan: "ResetPlan") -> None:
        """Commit the offsets of a plan; for the errors see `ResetPlan.execute`."""
        if not plan.offsets:
            return
        self.check_idle(plan.group)
        planned = {TopicPartition(each.topic, each.partition): each for each in plan.offsets}
        self._check_known(planned)
        origins = self._detector.origins({key: each.offset for key, each in planned.items()})
        now_ms = self._clock()
        told = {
            key: Committed(each.offset, now_ms, origins.get(key)) for key, each in planned.items()
        }

        def decide(known: Reader | None) -> Reader | None:
            if known is not None and known.kind != GROUP:
                raise query_error(known)
            # Compared inside the atomic change: a commit since the plan must not be lost.
            before = {} if known is None else known.offsets
            for key, each in planned.items():
                if each.before != (before[key].offset if key in before else None):
                    raise GroupNotEmptyError(
                        f"group {plan.group} has committed {key} since the plan was made: a "
                        "reader of the group is running; end it, and plan again"
                    )
            client = Reader(plan.group, GROUP, socket.gethostname())
            return committed_by_client(known, client, told)

        self._groups.change(plan.group, decide)

    def forget(self, group: str, keys: Iterable[TopicPartition]) -> bool:
        """Delete a group's offsets of some partitions; return True if any existed.

        Raises:
            GroupNotEmptyError: Kafka clients in the group read one of the topics.
        """
        self._check_kept()
        keys = list(keys)
        active = self._at_work().get(group)
        for topic, _ in keys:
            if active is not None and active.is_subscribed_to(topic):
                raise GroupNotEmptyError(
                    f"members of group {group} read {topic}: end them first, or their next commit "
                    "restores its offsets"
                )
        return self._groups.change(group, lambda known: without_partitions(known, keys))


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The offsets that a reset of a group would commit, returned by `Log.reset_reader`.

    Attributes:
        group: The name of the group.
        offsets: The new offset of each partition.

    Examples:
        >>> plan = log.reset_reader("dashboard", to="latest", topics="flights")
        >>> plan.warnings
        []
        >>> plan.execute()
    """

    _resets: ReaderResets
    group: str
    offsets: tuple[PlannedOffset, ...]
    _notes: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """Why offsets differ from the requested offsets, and whether the group may be active."""
        own = [each.warning for each in self.offsets if each.warning is not None]
        return [*self._notes, *own]

    def execute(self) -> None:
        """Commit the new offsets atomically. Other partitions keep their offsets.

        Raises:
            GroupNotEmptyError: The group has members, or has committed since the plan was made.
            InvalidRequestError: The group is a streaming query now.
            LogLockedError: The lock is held by another process.
            StorageUnavailableError: The log cannot be written.
        """
        self._resets.execute(self)


def _check_target(to: object) -> None:
    """Raise InvalidRequestError unless `to` is None or a valid `Target`."""
    expected = f"{', '.join(PLACES)}, an offset, a datetime or a timedelta"
    if isinstance(to, str):
        if to not in PLACES:
            raise refused("to", to, expected)
    elif isinstance(to, datetime):
        zoned("to", to)
    elif to is not None and not isinstance(to, timedelta):
        integer("to", to, expected)


def _named_topics(topics: object) -> dict[str, list[int] | None]:
    """Return {topic: partition numbers, or None for all} for any form of `ResetTopics`."""
    expected = "the name of a topic, a list of names, or {topic: partitions, None for all}"
    if isinstance(topics, str):
        return {topics: None}
    if not isinstance(topics, Iterable):
        raise refused("topics", topics, expected)
    named = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics)
    try:
        return {text("topic", name, expected): partition_numbers(by) for name, by in named.items()}
    except InvalidRequestError:
        raise refused("topics", topics, expected) from None


def query_error(reader: Reader) -> InvalidRequestError:
    """Return the error for a reset of a streaming query, which continues from its checkpoint."""
    return InvalidRequestError(
        f"{reader.group} is a streaming query of {reader.app or 'Spark'} on host "
        f"{reader.host or '?'}: it continues from its checkpoint, and the position registered "
        "here only shows its progress. Stop the query, and reset it by `sparklog checkpoint "
        "reset CHECKPOINT --to ...`"
    )


def _planned(
    key: TopicPartition,
    known: Mapping[TopicPartition, Committed],
    offset: int,
    warning: str | None = None,
) -> PlannedOffset:
    before = known[key].offset if key in known else None
    return PlannedOffset(
        topic=key.topic, partition=key.partition, before=before, offset=offset, warning=warning
    )


def _clamped(
    wanted: Mapping[TopicPartition, int], known: Mapping[TopicPartition, Committed], spans: Spans
) -> list[PlannedOffset]:
    """Return the new offsets, moved to the log start or end if they are outside of a partition.

    Source: checkOffsetsRange.

    Args:
        wanted: {partition: requested offset}.
        known: {partition: committed offset}.
        spans: {partition: (log start, end)}.
    """
    planned = []
    for key, offset in sorted(wanted.items()):
        start, end = spans[key]
        at = min(max(offset, start), end)
        warning = None
        if at != offset:
            side = "higher than latest" if offset > end else "lower than earliest"
            warning = (
                f"New offset ({offset}) is {side} offset for topic partition {key}. "
                f"Value will be set to {at}"
            )
        planned.append(_planned(key, known, at, warning))
    return planned
