"""Log dirs and the partitions in them: DescribeLogDirs, AlterReplicaLogDirs.

A partition that moves is in two of them: where it is, and as a future replica where it is to be.
Source: ReplicaManager.describeLogDirs, ReplicaManager.alterReplicaLogDirs (Kafka 4.1), KIP-113.
"""

import logging
import os
import shutil
from collections.abc import Mapping
from typing import Any, Final

from sparklog.clock import attempts
from sparklog.errors import SparklogError, UnknownTopicError
from sparklog.fs import LOCAL
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.messages import Api, ErrorCode, Request, Response
from sparklog.kafka.refusals import REFUSED, Refusal, read_only, reason
from sparklog.log.background_mover import BackgroundMover
from sparklog.log.log import Log, home_of, view_of
from sparklog.log.partition_reader import reader_of
from sparklog.log.topic_names import INTERNAL
from sparklog.logdir.log_dirs import find_dirs
from sparklog.logdir.paths import split_path
from sparklog.opening import url_of
from sparklog.storage.moves import MoveRequest
from sparklog.storage.segments import StaleReadError
from sparklog.storage.view import TopicInfo

Answer = dict[str, Any]
Replicas = dict[str, list[Answer]]
"""{topic: what lies in a log dir of it}."""
_PATIENCE_MS: Final = 1000
_UNKNOWN: Final = -1
_LOGGER: Final = logging.getLogger("sparklog.kafka")


def apis(broker: Broker) -> dict[Api, Served]:
    """Return what is served here."""

    async def handle(request: Request) -> Response:
        asked = request.body.topics
        wanted = None
        if asked is not None:
            wanted = {topic.topic: frozenset(topic.partitions) for topic in asked}
        return {
            "error_code": ErrorCode.none,
            "results": await broker.run(described, broker.log, wanted),
        }

    moves = ReplicaMoves(broker.log, broker.mover, is_writable=broker.is_writable)

    async def alter(request: Request) -> Response:
        return await broker.run(moves.alter, request.body)

    return {
        Api.ALTER_REPLICA_LOG_DIRS: Served((1, 2), alter),
        Api.DESCRIBE_LOG_DIRS: Served((1, 4), handle),
    }


class ReplicaMoves:
    """Moves a log's partitions between its log dirs, in the background. Its methods block."""

    def __init__(self, log: Log, mover: BackgroundMover, *, is_writable: bool) -> None:
        self._log, self._mover, self._is_writable = log, mover, is_writable

    def alter(self, body: Any) -> Response:
        """Ask for moves, each for itself: one that is refused keeps none of the others.

        A partition that is named twice goes where it was named last, as a broker has it.
        """
        asked: dict[str, dict[int, str]] = {}
        for each in body.dirs:
            for topic in each.topics:
                asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, each.path))
        results = [
            {
                "topic_name": name,
                "partitions": [
                    {"partition_index": p, "error_code": self._altered(name, p, path)}
                    for p, path in paths.items()
                ],
            }
            for name, paths in asked.items()
        ]
        self._mover.look()
        return {"results": results}

    def _altered(self, name: str, partition: int, path: str) -> ErrorCode:
        try:
            if not self._is_writable:
                raise read_only(self._log.path)
            if url_of(self._log.path) is not None:
                self._check_place(name, partition, path)
            else:
                self._ask(name, partition, path)
        except REFUSED as error:
            code, message = reason(error)
            _LOGGER.info("%s-%d isn't moved to %s: %s", name, partition, path, message)
            return code
        return ErrorCode.none

    def _ask(self, name: str, partition: int, path: str) -> None:
        if path not in [os.path.abspath(one) for one in split_path(self._log.path)]:
            raise _no_log_dir(path, self._log)
        if name in INTERNAL:
            raise UnknownTopicError(f"no topic {name}")
        home_of(self._log).moves.ask([MoveRequest(name, partition, path)])

    def _check_place(self, name: str, partition: int, path: str) -> None:
        """In a store all of it lies in one place, where it may be moved to: that is done."""
        if path != self._log.path:
            raise _no_log_dir(path, self._log)
        if partition not in self._log.topic(name).dirs:
            raise UnknownTopicError(f"topic {name} has no partition {partition}")


def _no_log_dir(path: str, log: Log) -> Refusal:
    return Refusal(
        ErrorCode.log_dir_not_found, f"{path} is no log dir of this log, which has {log.path}"
    )


def described(log: Log, wanted: Mapping[str, frozenset[int]] | None) -> list[Answer]:
    """Return the log's dirs with the sizes in bytes of `wanted` partitions; None: of all.

    A partition's size is that of its segments on this host, without what is only in remote storage.
    A log in a store has one dir, its URL, with all of its segments, and nobody knows what fits in.
    Blocks. Cost: a listing of each partition, a stat of each segment that is local.
    """
    url = url_of(log.path)
    moves = log.moves()  # before the topics: one that is done in between is told of once, or twice
    found: dict[str, Replicas] = {}
    for name, info in sorted(log.topics().items()):
        for partition, path in sorted(info.dirs.items()):
            if wanted is not None and partition not in wanted.get(name, ()):
                continue
            size = _size(log, info, partition, is_local=url is None)
            if size is not None:
                directory = os.path.dirname(path) if url is None else log.path
                replica = _replica(partition, size)
                found.setdefault(directory, {}).setdefault(name, []).append(replica)
    if url is not None:
        return [_answer(log.path, found.get(log.path, {}), _UNKNOWN, _UNKNOWN)]
    for move in moves:
        is_wanted = wanted is None or move.partition in wanted.get(move.topic, ())
        if is_wanted and move.state != "failed":
            replica = _replica(move.partition, move.copied_bytes, future_lag=move.offset_lag)
            found.setdefault(move.target, {}).setdefault(move.topic, []).append(replica)
    directories = split_path(log.path)
    absent = find_dirs(LOCAL, directories).absent
    return [
        _failed(directory) if number in absent else _log_dir(directory, found.get(directory, {}))
        for number, directory in enumerate(directories)
    ]


def _size(log: Log, info: TopicInfo, partition: int, *, is_local: bool) -> int | None:
    """Return a partition's size; None if it is gone or offline."""
    if partition in info.offline:
        return None
    for _ in attempts(_PATIENCE_MS):
        try:
            segments = reader_of(view_of(log), info.name, partition).metadata()
        except (FileNotFoundError, StaleReadError):
            if info.name not in log.topics():
                return None
            continue  # rolled, deleted or swapped meanwhile
        except SparklogError:
            return None
        return sum(segment.size for segment in segments if segment.local or not is_local)
    return None


def _log_dir(directory: str, replicas: Replicas) -> Answer:
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return _failed(directory)
    return _answer(directory, replicas, usage.total, usage.free)


def _failed(directory: str) -> Answer:
    return {"error_code": ErrorCode.kafka_storage_error, "log_dir": directory, "topics": []}


def _replica(partition: int, size: int, *, future_lag: int | None = None) -> Answer:
    return {
        "partition_index": partition,
        "partition_size": size,
        "offset_lag": future_lag or 0,
        "is_future_key": future_lag is not None,
    }


def _answer(
    directory: str, replicas: Replicas, total_bytes: int, usable_bytes: int
) -> Answer:
    topics = [{"name": name, "partitions": held} for name, held in replicas.items()]
    return {
        "error_code": ErrorCode.none,
        "log_dir": directory,
        "topics": topics,
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
    }
