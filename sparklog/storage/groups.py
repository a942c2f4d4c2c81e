"""Registered readers of a log: streaming queries, and groups of plain readers, and where they are.

A position is the next offset to read. It remembers the leader epoch of the record before it, so
that a log which was restored meanwhile is told from the one that was read.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.storage.commit_rate import CommitRate, RatePoint

GROUP_CHARS_MAX: Final = 249
NAME_CHARS_MAX: Final = GROUP_CHARS_MAX
"""A longer name of a query is cut: every commit writes it again."""
GROUP: Final = "group"
"""The kind of plain readers' groups; a streaming query's is "query"."""


class Origin(NamedTuple):
    """`epoch` of the record before a position, and the offset `since` which that epoch held."""

    epoch: int
    since: int


Origins = Mapping[TopicPartition, Origin]
NO_ORIGINS: Final[Origins] = MappingProxyType({})


class Committed(NamedTuple):
    """`offset` is the next one to read; `time_ms` when that was said; `origin` of what is read.

    `metadata` and `leader_epoch` are what a Kafka client committed with it, which gets them back
    as they are; sparklog itself goes by `origin`.
    """

    offset: int
    time_ms: int
    origin: Origin | None = None
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """A group, as its file has it. `batch` is the micro-batch of a query's last commit.

    `planners`: {who plans for a source of the query in its `run`: the topics of that source}.
    `pace`: how steadily it commits, a hint for those who look; None of a group that hasn't since.
    `name`: the name of the streaming query in its last run; empty where it has none, or none is
    known. Any text: a command that prints it replaces control characters.
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
        """Tell whether no other source of the query reads one of `topics`."""
        others = (held for each, held in self.planners.items() if each != planner)
        return all(set(topics).isdisjoint(held) for held in others)


def reader_to_json(reader: Reader) -> dict[str, Any]:
    """Return what is kept of a group; see sparklog.logdir.group_offsets for its form."""
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
    """Return the group of what is kept of it."""
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


def _paced(known: Reader | None, reader: Reader) -> Reader:
    """Return the group after a commit, with its pace. Cost: a few us, and 40 bytes a point."""
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
    """All registered readers. `damaged`: {path: time (ms)} of files that can't be read."""

    groups: list[Reader]
    damaged: Mapping[str, int]

    def slowest(self, *, now_ms: int, retention_ms: int) -> dict[TopicPartition, int]:
        """Return {(topic, partition): lowest offset} of all commits that haven't expired."""
        found: dict[TopicPartition, int] = {}
        for reader in self.groups:
            for key, at in reader.offsets.items():
                if not is_expired(at.time_ms, now_ms, retention_ms):
                    found[key] = min(at.offset, found.get(key, at.offset))
        return found


class ExpiredOffset(NamedTuple):
    """A commit that was, or would be, forgotten."""

    group: str
    topic: str
    partition: int
    offset: int
    time_ms: int


def is_expired(time_ms: int, now_ms: int, retention_ms: int) -> bool:
    """Tell whether a commit of that time no longer counts."""
    return now_ms - time_ms >= retention_ms


def expired_offsets(reader: Reader, now_ms: int, retention_ms: int) -> list[ExpiredOffset]:
    """Return a group's commits that no longer count."""
    return [
        ExpiredOffset(reader.group, *key, at.offset, at.time_ms)
        for key, at in sorted(reader.offsets.items())
        if is_expired(at.time_ms, now_ms, retention_ms)
    ]


def check_group(group: str) -> None:
    """Raise InvalidRequestError unless `group` can name a group."""
    is_text = isinstance(group, str) and group.isprintable() and group == group.strip()
    if not (is_text and 0 < len(group) <= GROUP_CHARS_MAX):
        raise InvalidRequestError(
            f"group={repr(group)[:80]}: expected a string of 1 to {GROUP_CHARS_MAX} printable "
            "characters, without spaces at the ends"
        )


def check_kept(groups: "Groups", home: str, instead: str = "") -> None:
    """Raise InvalidRequestError where a log keeps no groups; `instead`: what helps.

    So nothing of ours is written into a directory that is a broker's.
    """
    if not groups.are_waited_for:
        raise InvalidRequestError(
            f"{home} keeps no readers: in a broker's directory groups are the broker's "
            "(kafka-consumer-groups), and an archive has none until it is restored to a log dir "
            f"(sparklog tier restore){instead}",
            path=home,
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
    """Return what a group is after a task's, or a plain reader's, commit; None: it says so already.

    Other partitions of the group stay as they are. Two commits in the same micro-batch of a query
    are two sources of it: where both name a partition, the lower offset stands.
    Args: known: the group as it is. query: all but its offsets and planners is what it will be.
    """
    known = known or Reader(query.group, query.kind)
    planners = known.planners if known.run == query.run else {}
    topics = sorted({topic for topic, _ in offsets})
    again: Mapping[TopicPartition, Committed] = {}
    if query.batch is not None and known.batch == query.batch:
        again = known.offsets
    elif planner is not None and planner not in planners and planners:
        again = known.offsets  # a second source begins: what the first one's planner said stands
    after = {key: Committed(o, now_ms, origins.get(key)) for key, o in offsets.items()}
    for key in after.keys() & again.keys():
        if again[key].offset < after[key].offset:
            after[key] = again[key]._replace(time_ms=now_ms)
    if planner is not None:
        planners = {**planners, planner: topics}
    reader = replace(query, offsets={**known.offsets, **after}, planners=planners)
    if planner is not None and _says(known, reader) and known.is_alone(planner, topics):
        return None  # the planner was quicker
    return _paced(known, reader)


def _says(known: Reader, reader: Reader) -> bool:
    """Tell whether a group says of a query's positions what is to be written."""
    same = {key: at.offset for key, at in known.offsets.items()}
    mine = {key: at.offset for key, at in reader.offsets.items()}
    return (same, known.run, known.planners) == (mine, reader.run, reader.planners)


def committed_as_planned(
    known: Reader | None,
    offsets: Mapping[TopicPartition, int],
    *,
    planner: str,
    now_ms: int,
    origins: Origins = NO_ORIGINS,
) -> Reader | None:
    """Return what a group is after its planner's commit; None: that is for its tasks to say.

    So where the group isn't known (any more), or another source of the query reads the same topic,
    and may be further behind.
    """
    if known is None or not known.is_alone(planner, {topic for topic, _ in offsets}):
        return None
    after = {key: Committed(o, now_ms, origins.get(key)) for key, o in offsets.items()}
    return _paced(known, replace(known, offsets={**known.offsets, **after}))


Decision = Callable[[Reader | None], Reader | None]
"""From what a group is (None: not known) to what it is to be; None: it stays as it is.

A group without offsets is forgotten. May be called again, on what another one has made of it.
"""


def committed_by_client(
    known: Reader | None, client: Reader, offsets: Mapping[TopicPartition, Committed]
) -> Reader | None:
    """Return what a group is after commits of a Kafka client's; other partitions stay.

    Raises: InvalidRequestError: a streaming query has that name, whose progress is its own.
    """
    if known is not None and known.kind != client.kind:
        raise of_query(known)
    if not offsets:
        return None
    before: Mapping[TopicPartition, Committed] = {} if known is None else known.offsets
    return _paced(known, replace(client, offsets={**before, **offsets}))


def without_partitions(known: Reader | None, keys: Collection[TopicPartition]) -> Reader | None:
    """Return what a group is once a Kafka client has deleted its offsets of some partitions.

    Raises: InvalidRequestError, as `committed_by_client`.
    """
    if known is not None and known.kind != GROUP:
        raise of_query(known)
    if known is None or known.offsets.keys().isdisjoint(keys):
        return None
    return replace(known, offsets={k: at for k, at in known.offsets.items() if k not in keys})


def touched(known: Reader | None, keys: Collection[TopicPartition], now_ms: int) -> Reader | None:
    """Return what a group is if its commits of some partitions count as made now."""
    if known is None or known.offsets.keys().isdisjoint(keys):
        return None
    offsets = {
        key: at._replace(time_ms=max(now_ms, at.time_ms)) if key in keys else at
        for key, at in known.offsets.items()
    }
    return replace(known, offsets=offsets)


def of_query(known: Reader) -> InvalidRequestError:
    """Return the error for a Kafka client that would change what is a streaming query's."""
    return InvalidRequestError(
        f"group {known.group} is a streaming query's of {known.app or 'Spark'} on host "
        f"{known.host or '?'}, which keeps its own progress: choose another group.id, or forget "
        "it by log.delete_reader once the query is gone"
    )


class Groups(Protocol):
    """How far a log's readers are, by group. They write it themselves, without the log's turn."""

    def positions(self, group: str) -> Mapping[TopicPartition, Committed]:
        """Return what a group has committed; empty if nobody knows it.

        Raises: InvalidRequestError: no such name can be. DataCorruptionError: what it had
        committed can't be read, and to begin elsewhere would lose its place.
        """

    def reader(self, group: str) -> Reader | None:
        """Return all that is known of a group; None if nothing is. Raises: as `positions`."""

    def change(self, group: str, decide: Decision) -> bool:
        """Make of a group what `decide` wants, durably; tells whether anything was written.

        A damaged group counts as unknown. Members of a group change it at the same time, as in
        `commit`. Raises: what `decide` raises, else as `commit`.
        """

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        now_ms: int,
        host: str,
        origins: Origins = NO_ORIGINS,
    ) -> None:
        """Register {partition: the next offset to read}, durably; others of the group stay.

        Members of a group commit at the same time: none of them is lost. A commit may go back.
        Raises: InvalidRequestError, LogLockedError, StorageUnavailableError.
        """

    @property
    def are_waited_for(self) -> bool:
        """Whether anything of this log heeds its readers: nothing does in a broker's directory.

        Else nothing may be committed: see `check_kept`.
        """

    def commit_query(
        self,
        query: Reader,
        offsets: Mapping[TopicPartition, int],
        *,
        now_ms: int,
        planner: str | None = None,
        origins: Origins = NO_ORIGINS,
    ) -> None:
        """Register, from a task, where a query's micro-batch begins; others of the group stay.

        `query`: its group, kind, host, app, batch, run and name. What the group then is:
        `committed_by_query`, which may say that nothing is to be written.
        Raises: as `commit`.
        """

    def group_of_planner(self, planner: str) -> str | None:
        """Return the group that a task registered for `planner`; None if none has yet."""

    def commit_planned(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        planner: str,
        now_ms: int,
        origins: Origins = NO_ORIGINS,
    ) -> bool:
        """Register what a query's `planner` knows to be committed; False if that is for its tasks.

        What the group then is: `committed_as_planned`. Raises: as `commit`.
        """

    def readers(self) -> Readers:
        """Return all groups, by name."""

    def delete(self, group: str) -> bool:
        """Forget a group; tells whether it was known. One that still reads registers again."""
