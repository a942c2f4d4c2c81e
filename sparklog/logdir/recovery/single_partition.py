"""FULL recovery of a single partition; the partition goes offline if that is impossible."""

import contextlib
from collections.abc import Callable
from dataclasses import replace

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.logdir.log_manager import LogManager
from sparklog.logdir.offset_checkpoints import RECOVERY_POINT, Offsets, read_offsets
from sparklog.logdir.recovery.partition_recovery import CommittedState, recover


def recovery_points(manager: LogManager) -> Offsets:
    """Return Kafka's recovery points of all log dirs. Unreadable files are ignored."""
    points: Offsets = {}
    for directory in manager.offline.dirs.present:
        with contextlib.suppress(DataCorruptionError):  # from the start: slower, but safe
            points |= read_offsets(manager.fs, directory, RECOVERY_POINT)
    return points


def recover_partition(
    manager: LogManager,
    key: TopicPartition,
    points: Offsets,
    remaining: Callable[[int], None] = lambda _: None,
) -> None:
    """Recover a partition. A damaged or incomplete partition goes offline.

    Args:
        manager: The log.
        key: The partition.
        points: The recovery points of all partitions.
        remaining: Called with the number of segments that are still to be read.
    """
    error = _recovered(manager, key, points, remaining)
    if error is not None:
        manager.offline.add(key, error)


def check_partition(manager: LogManager, key: TopicPartition) -> DataCorruptionError | None:
    """Return the error, if any, with which recovery would take the partition offline.

    No file is changed.
    """
    return _recovered(manager, key, recovery_points(manager), check_only=True)


def _recovered(
    manager: LogManager,
    key: TopicPartition,
    points: Offsets,
    remaining: Callable[[int], None] = lambda _: None,
    *,
    check_only: bool = False,
) -> DataCorruptionError | None:
    known = manager.state.topics[key.topic]
    config = known.parsed()
    if known.adopted:  # as in a compacted log, offsets may be missing
        config = replace(config, cleanup_policy=("compact",))
    path = manager.partition_path(*key)
    try:
        recover(
            manager.fs,
            path,
            config,
            manager.clock,
            CommittedState(
                end=manager.state.ends[key],
                start=manager.state.starts.get(key, 0),
                local_start=manager.state.local_start(*key),
                recovery_point=points.get(key, 0),
                epoch=manager.state.epoch,
                tail_crc=manager.state.tails.get(key, -1),
            ),
            remaining=remaining,
            check_only=check_only,
        )
    except (FileNotFoundError, InvalidRequestError) as error:
        return DataCorruptionError(str(error), path=path)
    except DataCorruptionError as error:
        return error
    return None
