"""Registered readers of a log (streaming queries and consumer groups) and their positions.

A position is the next offset to read. A position includes the leader epoch of the preceding record.
By this epoch a reader detects that the log was restored from a backup (KIP-320).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.storage.commit_rate import CommitRate, RatePoint

GROUP_CHARS_MAX: Final = 249
NAME_CHARS_MAX: Final = GROUP_CHARS_MAX
"""A longer name of a query is truncated, because every commit writes the name again."""
GROUP: Final = "group"
"""The kind of a consumer group. The kind of a streaming query is "query"."""


class Origin(NamedTuple):
    """The origin of a position: the leader epoch of the preceding record.

    Attributes:
        epoch: The leader epoch of the record before the position.
        since: The first offset of this leader epoch.
    """

    epoch: int
    since: int


Origins = Mapping[TopicPartition, Origin]
NO_ORIGINS: Final[Origins] = MappingProxyType({})


class Committed(NamedTuple):
    """A committed position.

    Attributes:
        offset: The next offset to read.
        time_ms: When the position was committed.
        origin: The leader epoch of the record before the position.
        metadata: A Kafka client's metadata of the commit, returned unchanged to the client.
        leader_epoch: A Kafka client's leader epoch of the commit, returned unchanged to the client.
            sparklog itself uses `origin`.
    """

    offset: int
    time_ms: int
    origin: Origin | None = None
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """A registered reader, as stored in the reader's file.

    Attributes:
        group: The name of the group, or of the query's registration.
        kind: query or group.
        host: The host of the last commit.
        app: The application of the last commit.
        batch: The micro-batch of a query's last commit.
        offsets: The committed offsets.
        run: The id of the query's last run.
        planners: {id of a source of the query in its last run: the topics of that source}.
        commit_rate: How regularly the reader commits; None if its last commit was made by a version
            of sparklog that did not record the rate.
        name: The name of the streaming query in its last run, or "". The name can be any text:
            commands that print it replace control characters.
    """

    group: str
    kind: str
    host: str = ""
    app: str = ""
    batch: int | None = None
    offsets: Mapping[TopicPartition, Committed] = field(default_factory=dict)
    run: str = ""
    planners: Mapping[str, list[str]] = field(default_factory=dict)
    commit_rate: CommitRate | None = field(default=None, compare=False)
    name: str = ""

    def is_alone(self, planner: str, topics: Collection[str]) -> bool:
        """Return True if no source of the query but `planner` reads any of `topics`.

        `planner` is the id of a source, as in `planners`.
        """
        others = (topics_read for other, topics_read in self.planners.items() if other != planner)
        return all(set(topics).isdisjoint(topics_read) for topics_read in others)


def reader_to_json(reader: Reader) -> dict[str, Any]:
    """Return a reader as the dict that is stored as JSON (see sparklog.logdir.group_offsets)."""
    offsets: dict[str, dict[str, Any]] = {}
    epochs: dict[str, dict[str, Any]] = {}
    notes: dict[str, dict[str, Any]] = {}
    for (topic, partition), at in sorted(reader.offsets.items()):
        offsets.setdefault(topic, {})[str(partition)] = [at.offset, at.time_ms]
        if at.origin is not None:
            epochs.setdefault(topic, {})[str(partition)] = list(at.origin)
        if at.metadata or at.leader_epoch is not None:
            notes.setdefault(topic, {})[str(partition)] = [at.metadata, at.leader_epoch]
    fields = ("group", "kind", "host", "app", "batch")
    content: dict[str, Any] = {name: getattr(reader, name) for name in fields}
    content |= {"offsets": offsets, "epochs": epochs}
    if reader.name:
        content["name"] = reader.name
    if notes:
        content["notes"] = notes
    if reader.planners:
        content |= {"run": reader.run, "planners": dict(reader.planners)}
    if reader.commit_rate is not None:
        content["pace"] = reader.commit_rate.to_json()
    return content


def reader_from_json(content: Mapping[str, Any]) -> Reader:
    """Rebuild a reader from the stored form."""
    origins = {
        TopicPartition(topic, int(p)): Origin(*origin)
        for topic, by_partition in content.get("epochs", {}).items()
        for p, origin in by_partition.items()
    }
    notes = {
        TopicPartition(topic, int(p)): note
        for topic, by_partition in content.get("notes", {}).items()
        for p, note in by_partition.items()
    }
    offsets = {
        (key := TopicPartition(topic, int(p))): Committed(
            at[0], at[1], origins.get(key), *notes.get(key, ())
        )
        for topic, by_partition in content["offsets"].items()
        for p, at in by_partition.items()
    }
    return Reader(
        content["group"], content["kind"], content["host"], content["app"], content["batch"],
        offsets, content.get("run", ""), content.get("planners", {}),
        CommitRate.from_json(content.get("pace")), content.get("name", ""),
    )  # fmt: skip


def _with_commit_rate(known: Reader | None, reader: Reader) -> Reader:
    """Return a reader that was just committed, with its commit rate updated by this commit.

    `known` is the reader before the commit. Cost: a few us, 40 bytes per point.
    """
    if not reader.offsets:
        return reader
    point = RatePoint(
        max(at.time_ms for at in reader.offsets.values()),
        len(reader.offsets),
        sum(at.offset for at in reader.offsets.values()),
    )
    before = known.commit_rate if known is not None else None
    return replace(reader, commit_rate=(before or CommitRate(point.time_ms)).after_commit(point))


@dataclass(frozen=True, slots=True)
class Readers:
    """All registered readers.

    Attributes:
        groups: The readers that can be read.
        damaged: {path: time in ms when it was written} of each file or object that can't be read.
    """

    groups: list[Reader]
    damaged: Mapping[str, int]

    def slowest(self, *, now_ms: int, retention_ms: int) -> dict[TopicPartition, int]:
        """Return {(topic, partition): lowest offset} of all commits that have not expired."""
        found: dict[TopicPartition, int] = {}
        for reader in self.groups:
            for key, at in reader.offsets.items():
                if not is_expired(at.time_ms, now_ms, retention_ms):
                    found[key] = min(at.offset, found.get(key, at.offset))
        return found


class ExpiredOffset(NamedTuple):
    """An expired commit that was deleted, or would be."""

    group: str
    topic: str
    partition: int
    offset: int
    time_ms: int


def is_expired(time_ms: int, now_ms: int, retention_ms: int) -> bool:
    """Return True if a commit made at this time has expired."""
    return now_ms - time_ms >= retention_ms


def expired_offsets(reader: Reader, now_ms: int, retention_ms: int) -> list[ExpiredOffset]:
    return [
        ExpiredOffset(reader.group, *key, at.offset, at.time_ms)
        for key, at in sorted(reader.offsets.items())
        if is_expired(at.time_ms, now_ms, retention_ms)
    ]


def without_expired(reader: Reader, now_ms: int, retention_ms: int) -> Reader:
    offsets = {
        key: at
        for key, at in reader.offsets.items()
        if not is_expired(at.time_ms, now_ms, retention_ms)
    }
    return replace(reader, offsets=offsets)


def check_group(group: str) -> None:
    """Raise InvalidRequestError unless `group` is a valid group name."""
    is_text = isinstance(group, str) and group.isprintable() and group == group.strip()
    if not (is_text and 0 < len(group) <= GROUP_CHARS_MAX):
        raise InvalidRequestError(
            f"group={repr(group)[:80]}: expected a string of 1 to {GROUP_CHARS_MAX} printable "
            "characters, without spaces at the ends"
        )


def committed_by_query(
    known: Reader | None,
    query: Reader,
    offsets: Mapping[TopicPartition, int],
    *,
    now_ms: int,
    planner: str | None = None,
    origins: Origins = NO_ORIGINS,
) -> Reader | None:
    """Return a group after the commit of a task or a plain reader, or None without a change.

    Other partitions of the group are unchanged. Two commits in the same micro-batch of a query are
    made by two sources: if both include a partition, the lower offset is committed.

    Args:
        known: The group before the commit.
        query: The group's fields after the commit, without offsets and planners.
        offsets: The committed positions.
        now_ms: The time of the commit.
        planner: The id of the planner of the query's source, which this commit registers.
        origins: The leader epochs of the positions.
    """
    known = known or Reader(query.group, query.kind)
    planners = known.planners if known.run == query.run else {}
    topics = sorted({topic for topic, _ in offsets})
    again: Mapping[TopicPartition, Committed] = {}
    # Two sources of a query read the same topic. The records between their positions must be read
    # again after a restart, so the lower offset counts.
    if query.batch is not None and known.batch == query.batch:
        again = known.offsets
    elif planner is not None and planner not in planners and planners:
        again = known.offsets  # second source: keep the commits of the first source's planner
    after = {key: Committed(o, now_ms, origins.get(key)) for key, o in offsets.items()}
    for key in after.keys() & again.keys():
        if again[key].offset < after[key].offset:
            after[key] = again[key]._replace(time_ms=now_ms)
    if planner is not None:
        planners = {**planners, planner: topics}
    reader = replace(query, offsets={**known.offsets, **after}, planners=planners)
    same = {key: at.offset for key, at in known.offsets.items()}
    wanted = {key: at.offset for key, at in reader.offsets.items()}
    is_known = (same, known.run, known.planners) == (wanted, reader.run, reader.planners)
    if planner is not None and is_known and known.is_alone(planner, topics):
        return None  # the planner has already committed the same positions
    return _with_commit_rate(known, reader)


def committed_as_planned(
    known: Reader | None,
    offsets: Mapping[TopicPartition, int],
    *,
    planner: str,
    now_ms: int,
    origins: Origins = NO_ORIGINS,
) -> Reader | None:
    """Return a group after the planner's commit, or None if the query's tasks must commit.

    The tasks must commit if the group is unknown, or if another source of the query reads the same
    topic and may be further behind.
    """
    if known is None or not known.is_alone(planner, {topic for topic, _ in offsets}):
        return None
    after = {key: Committed(o, now_ms, origins.get(key)) for key, o in offsets.items()}
    return _with_commit_rate(known, replace(known, offsets={**known.offsets, **after}))


Decision = Callable[[Reader | None], Reader | None]
"""Returns the new state of a group for its current state, or None for no change.

The current state of an unknown group is None. A new state without offsets deletes the group. The
function may be called again with the result of a concurrent change.
"""


def committed_by_client(
    known: Reader | None, client: Reader, offsets: Mapping[TopicPartition, Committed]
) -> Reader | None:
    """Return a group after commits of a Kafka client; other partitions are unchanged.

    Raises:
        InvalidRequestError: The name belongs to a streaming query, which tracks its own progress.
    """
    if known is not None and known.kind != client.kind:
        raise of_query(known)
    if not offsets:
        return None
    before: Mapping[TopicPartition, Committed] = {} if known is None else known.offsets
    return _with_commit_rate(known, replace(client, offsets={**before, **offsets}))


def without_partitions(known: Reader | None, keys: Collection[TopicPartition]) -> Reader | None:
    """Return a group after a Kafka client deleted the group's offsets of some partitions.

    Raises:
        InvalidRequestError: The group belongs to a streaming query.
    """
    if known is not None and known.kind != GROUP:
        raise of_query(known)
    if known is None or known.offsets.keys().isdisjoint(keys):
        return None
    return replace(known, offsets={k: at for k, at in known.offsets.items() if k not in keys})


def touched(known: Reader | None, keys: Collection[TopicPartition], now_ms: int) -> Reader | None:
    """Return a group after an endpoint renewed its commits of some partitions.

    The renewed commits have the time `now_ms`, so they expire later. Returns None if the group has
    committed none of the partitions.
    """
    if known is None or known.offsets.keys().isdisjoint(keys):
        return None
    offsets = {
        key: at._replace(time_ms=max(now_ms, at.time_ms)) if key in keys else at
        for key, at in known.offsets.items()
    }
    return replace(known, offsets=offsets)


def of_query(known: Reader) -> InvalidRequestError:
    """Return the error for a Kafka client that tries to change a streaming query's group."""
    return InvalidRequestError(
        f"group {known.group} belongs to a streaming query of {known.app or 'Spark'} on host "
        f"{known.host or '?'}, which tracks its own progress: choose another group.id, or delete "
        "the group by log.delete_reader after the query has ended"
    )
