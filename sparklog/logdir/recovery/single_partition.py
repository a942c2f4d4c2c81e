"""FULL recovery of a partition in the log's state, which goes offline if that is impossible."""

import contextlib
from collections.abc import Callable
from dataclasses import replace

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.logdir.log_manager import LogManager
from sparklog.logdir.offset_checkpoints import RECOVERY_POINT, Offsets, read_offsets
from sparklog.logdir.recovery.partition_recovery import recover


def recovery_points(session: LogManager) -> Offsets:
    """Return Kafka's recovery points of all log dirs. Unreadable files are ignored."""
    points: Offsets = {}
    for directory in session.present:
        with contextlib.suppress(DataCorruptionError):  # from the start: slower, but safe
            points |= read_offsets(session.fs, directory, RECOVERY_POINT)
    return points


def recover_partition(
    session: LogManager,
    key: TopicPartition,
    points: Offsets,
    remaining: Callable[[int], None] = lambda _: None,
) -> None:
    """Recover a partition. A damaged or incomplete partition goes offline."""
    error = _recovered(session, key, points, remaining)
    if error is not None:
        session.go_offline(key, error)


def check_partition(session: LogManager, key: TopicPartition) -> DataCorruptionError | None:
    """Return the error, if any, with which recovery would take the partition offline.

    No file is changed.
    """
    return _recovered(session, key, recovery_points(session), check_only=True)


def _recovered(
    session: LogManager,
    key: TopicPartition,
    points: Offsets,
    remaining: Callable[[int], None] = lambda _: None,
    *,
    check_only: bool = False,
) -> DataCorruptionError | None:
    known = session.state.topics[key.topic]
    config = known.parsed()
    if known.adopted:  # as in a compacted log, offsets may be missing
        config = replace(config, cleanup_policy=("compact",))
    path = session.partition_path(*key)
    try:
        recover(
            session.fs,
            path,
            config,
            session.clock,
            end=session.state.ends[key],
            recovery_point=points.get(key, 0),
            log_start=session.state.starts.get(key, 0),
            local_start=session.state.local_start(*key),
            tail_crc=session.state.tails.get(key, -1),
            newest_epoch=session.state.epoch,
            remaining=remaining,
            check_only=check_only,
        )
    except (FileNotFoundError, InvalidRequestError) as error:
        return DataCorruptionError(str(error), path=path)
    except DataCorruptionError as error:
        return error
    return None
