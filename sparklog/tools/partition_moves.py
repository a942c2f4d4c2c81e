"""Moves between log dirs for who waits until they are done, and kafka-reassign-partitions' JSON.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.clock import pause
from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, LogLockedError, SparklogError
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.log import Log, home_of
from sparklog.logdir.free_space import SPARE_BYTES
from sparklog.progress import Progress
from sparklog.storage.moves import MovedPartition, MoveRequest, MoveStatus
from sparklog.tools.log_dir_balance import WITHIN, BalancePlan, Held, Place, plan_balance
from sparklog.tools.log_dirs import describe_log_dirs

_LOOK_MS: Final = 200
_ANY: Final = "any"
Directories = Mapping[TopicPartition, str]


@dataclass(slots=True)
class Waited:
    """What came of moves. `elsewhere`: another process did them; `cancelled`: somebody did so."""

    done: list[MovedPartition] = field(default_factory=list)
    elsewhere: list[MoveRequest] = field(default_factory=list)
    cancelled: list[MoveRequest] = field(default_factory=list)
    there: list[MoveRequest] = field(default_factory=list)
    failed: list[tuple[TopicPartition, SparklogError | str]] = field(default_factory=list)


def move_all(
    log: Log,
    requests: Sequence[MoveRequest],
    *,
    progress: Progress | None = None,
    done: Callable[[MovedPartition], None] | None = None,
    waits: Callable[[], None] | None = None,
) -> Waited:
    """Move partitions and wait until all are there, or failed; without requests what is asked for.

    Where another process moves partitions it does these, too. What fails here is tried no more;
    whoever interrupts it cancels the rest. Who is killed leaves them to a service, an endpoint or
    the next call. `waits`: is told once that somebody else is at it.
    Raises: what `Log.move_partition` raises of a request that can't be.
    """
    moves, waited = home_of(log).moves, Waited()
    before = {(move.topic, move.partition): move for move in moves.status()}
    asked = set(moves.ask(requests)) if requests else {move.id for move in before.values()}
    status = {move.id: move for move in moves.status()}
    mine = {move_id: status[move_id] for move_id in asked if move_id in status}
    errors: dict[str, SparklogError | str] = {}
    moved: dict[tuple[str, int], MovedPartition] = {}

    def finished(one: MovedPartition) -> None:
        moved[one.topic, one.partition] = one
        waited.done.append(one)
        if done is not None:
            done(one)

    try:
        while _left(mine, status, errors):
            try:
                moves.carry_out(progress=progress, done=finished, failed=errors.__setitem__)
            except LogLockedError:
                if waits is not None:
                    waits()
                    waits = None
                pause(_LOOK_MS)
            status = {move.id: move for move in moves.status()}
            for move_id, move in status.items():
                if move_id in mine and move.error is not None:
                    errors.setdefault(move_id, move.error)
    except BaseException:
        moves.cancel([TopicPartition(m.topic, m.partition) for m in mine.values()])
        raise
    failed = [mine[move_id] for move_id in errors if move_id in mine]
    if failed and requests:
        moves.cancel([TopicPartition(move.topic, move.partition) for move in failed])
    waited.failed = [
        (TopicPartition(move.topic, move.partition), errors[move.id]) for move in failed
    ]
    _sort_out(log, waited, requests, mine, moved, errors)
    return waited


def _left(
    mine: Mapping[str, MoveStatus], status: Mapping[str, MoveStatus], errors: Mapping[str, Any]
) -> bool:
    return any(move_id in status and move_id not in errors for move_id in mine)


def _sort_out(
    log: Log,
    waited: Waited,
    requests: Sequence[MoveRequest],
    mine: Mapping[str, MoveStatus],
    moved: Mapping[tuple[str, int], MovedPartition],
    errors: Mapping[str, Any],
) -> None:
    """Tell of requests that this process did nothing for, what became of them."""
    asked = {(move.topic, move.partition): move for move in mine.values()}
    topics = log.topics()
    for request in requests:
        key = request.topic, request.partition
        if key not in asked:
            waited.there.append(request)
        elif key not in moved and asked[key].id not in errors:
            topic = topics.get(request.topic)
            place = "" if topic is None else os.path.dirname(topic.dirs.get(request.partition, ""))
            is_there = place == os.path.abspath(request.to)
            (waited.elsewhere if is_there else waited.cancelled).append(request)


# --- kafka-reassign-partitions' JSON ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reassigned:
    """A partition of a reassignment: its replicas, and the log dir of each; "any" names none."""

    key: TopicPartition
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...]

    @property
    def to(self) -> str | None:
        """The log dir that it is to move to; None: it stays."""
        return None if self.log_dirs[0] == _ANY else self.log_dirs[0]


def read_reassignment(text: str) -> list[Reassigned]:
    """Return the partitions of a reassignment.

    Raises: InvalidRequestError: it is something else, is empty, names a partition twice, or more
        log dirs than replicas. Source: ReassignPartitionsCommand.parsePartitionReassignmentData.
    """
    found: dict[TopicPartition, Reassigned] = {}
    try:
        for each in json.loads(text)["partitions"]:
            key = TopicPartition(str(each["topic"]), int(each["partition"]))
            replicas = tuple(int(node) for node in each.get("replicas", ()))
            dirs = tuple(str(name) for name in each.get("log_dirs", [_ANY] * len(replicas or [0])))
            if replicas and len(dirs) != len(replicas):
                raise InvalidRequestError(
                    f"Size of replicas list {list(replicas)} is different from size of log dirs "
                    f"list {list(dirs)} for partition {key}"
                )
            if len(dirs) != 1:
                raise InvalidRequestError(
                    f"{each}: a log has one copy of a partition, so log_dirs has one entry"
                )
            if key in found:
                raise InvalidRequestError(
                    f"Partition reassignment contains duplicate topic partitions: {key}"
                )
            found[key] = Reassigned(key, replicas, dirs)
    except (
        ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError,
    ) as error:  # fmt: skip
        if isinstance(error, InvalidRequestError):
            raise
        raise InvalidRequestError(
            f'not a reassignment ({error!r}): want {{"version": 1, "partitions": [{{"topic": "t", '
            '"partition": 0, "log_dirs": ["/disk2"]}]}'
        ) from error
    return list(found.values())


def read_topics_to_move(text: str) -> list[str]:
    """Return the topics of {"topics": [{"topic": name}], "version": 1}; raises as above."""
    try:
        names = [str(each["topic"]) for each in json.loads(text)["topics"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidRequestError(
            f'no topics to move ({error!r}): want {{"topics": [{{"topic": "t"}}], "version": 1}}'
        ) from error
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InvalidRequestError(
            f"List of topics to reassign contains duplicate entries: {twice}"
        )
    return names


def as_reassignment(directories: Directories, node_id: int) -> str:
    """Return {partition: log dir} as kafka-reassign-partitions takes it, on one line."""
    partitions = [
        {
            "topic": key.topic, "partition": key.partition, "replicas": [node_id],
            "log_dirs": [path],
        }
        for key, path in sorted(directories.items())
    ]  # fmt: skip
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def places_of(log: Log, keys: Sequence[TopicPartition] | None = None) -> dict[TopicPartition, str]:
    """Return the log dir of each partition, None: of all. Raises: UnknownTopicError."""
    if keys is None:
        topics = log.topics()
        keys = [TopicPartition(name, p) for name, info in topics.items() for p in info.dirs]
    found = {}
    for key in keys:
        dirs = log.topic(key.topic).dirs
        if key.partition not in dirs:
            raise InvalidRequestError(f"Unable to find partition: {key}")
        found[key] = os.path.dirname(dirs[key.partition])
    return found


# --- balance ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Balance:
    """A plan, with the log dirs and partitions that it is of; `left_out`: {log dir: why}."""

    plan: BalancePlan
    directories: tuple[str, ...]
    left_out: dict[str, str]

    @property
    def requests(self) -> list[MoveRequest]:
        """What is to be asked for."""
        return [
            MoveRequest(*move.held.key, self.directories[move.target]) for move in self.plan.moves
        ]

    def to_reassignment(self, node_id: int) -> str:
        """Return the plan as kafka-reassign-partitions takes it."""
        moves = {m.held.key: self.directories[m.target] for m in self.plan.moves}
        return as_reassignment(moves, node_id)


def plan_log_dirs(
    log: Log,
    *,
    topics: Sequence[str] | None = None,
    within: float = WITHIN,
    min_free_bytes: int = 0,
    fs: FileSystem = LOCAL,
) -> Balance:
    """Plan what makes the log's directories even; nothing is changed.

    A directory's share is by what the log has there and what is free, above `min_free_bytes`;
    those of one disk share that. `topics`: only their partitions may move. Offline log dirs, and
    what moves already, are left out. Cost: `describe_log_dirs`.
    """
    floor = min_free_bytes + SPARE_BYTES
    for name in topics or ():
        log.topic(name)
    known = describe_log_dirs(log.path, fs=fs)["brokers"][0]["logDirs"]
    left_out = {one["logDir"]: one["error"] for one in known if one["error"] is not None}
    there = [one for one in known if one["error"] is None]
    disks = [fs.identity(one["logDir"])[0] for one in there]
    sizes = [sum(p["size"] for p in one["partitions"] if not p["isFuture"]) for one in there]
    free = [max(0, fs.free_bytes(one["logDir"]) - floor) for one in there]
    places = []
    for number, one in enumerate(there):
        same = [n for n, disk in enumerate(disks) if disk == disks[number]]
        capacity = (free[number] + sum(sizes[n] for n in same)) // len(same)
        places.append(Place(one["logDir"], capacity, free[number], disks[number]))
    moving = {(move.topic, move.partition) for move in log.moves()}
    held, fixed = [], [0] * len(there)
    for number, one in enumerate(there):
        for each in one["partitions"]:
            topic, _, partition = each["partition"].rpartition("-")
            key = TopicPartition(topic, int(partition))
            if each["isFuture"]:
                continue
            if key in moving or (topics is not None and topic not in topics):
                fixed[number] += each["size"]
            else:
                held.append(Held(key, each["size"], number))
    plan = plan_balance(places, held, within=within, fixed=fixed)
    return Balance(plan, tuple(one["logDir"] for one in there), left_out)
