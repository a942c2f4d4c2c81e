"""DescribeLogDirs: log dirs and the partitions in them.

AlterReplicaLogDirs is not served: a partition moves only while no endpoint has the log open.
Source: ReplicaManager.describeLogDirs (Kafka 4.1), KIP-113.
"""

import os
import shutil
from collections.abc import Mapping
from typing import Any, Final

from sparklog.clock import attempts
from sparklog.errors import SparklogError
from sparklog.fs import LOCAL
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.messages import Api, ErrorCode, Request, Response
from sparklog.log.log import Log, view_of
from sparklog.log.partition_reader import reader_of
from sparklog.logdir.log_dirs import find_dirs
from sparklog.logdir.paths import split_path
from sparklog.opening import url_of
from sparklog.storage.segments import StaleReadError
from sparklog.storage.view import TopicInfo

Answer = dict[str, Any]
Replicas = dict[str, list[Answer]]
"""{topic: its partitions in a log dir}."""
_PATIENCE_MS: Final = 1000
_UNKNOWN: Final = -1


def apis(broker: Broker) -> dict[Api, Served]:
    """Return the handler of DescribeLogDirs."""

    async def handle(request: Request) -> Response:
        asked = request.body.topics
        wanted = None
        if asked is not None:
            wanted = {topic.topic: frozenset(topic.partitions) for topic in asked}
        return {
            "error_code": ErrorCode.none,
            "results": await broker.run(described, broker.log, wanted),
        }

    return {Api.DESCRIBE_LOG_DIRS: Served((1, 4), handle)}


def described(log: Log, wanted: Mapping[str, frozenset[int]] | None) -> list[Answer]:
    """Return the log's dirs with the sizes in bytes of the partitions in `wanted`; None: of all.

    The size of a partition is the size of its local segments, without remote-only segments. A log
    in a store has a single dir, its URL, with all segments and unknown capacity. Blocks. Cost: a
    listing per partition, a stat per local segment.
    """
    url = url_of(log.path)
    found: dict[str, Replicas] = {}
    for name, info in sorted(log.topics().items()):
        for partition, path in sorted(info.dirs.items()):
            if wanted is not None and partition not in wanted.get(name, ()):
                continue
            size = _size(log, info, partition, is_local=url is None)
            if size is not None:
                directory = os.path.dirname(path) if url is None else log.path
                replica = {
                    "partition_index": partition, "partition_size": size, "offset_lag": 0,
                    "is_future_key": False,
                }  # fmt: skip
                found.setdefault(directory, {}).setdefault(name, []).append(replica)
    if url is not None:
        return [_answer(log.path, found.get(log.path, {}), _UNKNOWN, _UNKNOWN)]
    directories = split_path(log.path)
    absent = find_dirs(LOCAL, directories).absent
    return [
        _failed(directory) if number in absent else _log_dir(directory, found.get(directory, {}))
        for number, directory in enumerate(directories)
    ]


def _size(log: Log, info: TopicInfo, partition: int, *, is_local: bool) -> int | None:
    """Return a partition's size; None for a deleted or offline partition."""
    if partition in info.offline:
        return None
    for _ in attempts(_PATIENCE_MS):
        try:
            segments = reader_of(view_of(log), info.name, partition).metadata()
        except (FileNotFoundError, StaleReadError):
            # No lock is held, so a topic or a segment may be deleted during the listing.
            if info.name not in log.topics():
                return None
            continue  # a segment was rolled, deleted or replaced
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
