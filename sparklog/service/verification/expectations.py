"""Expected offsets of each partition: from the ledger, or from a broker's checkpoints."""

from dataclasses import replace
from typing import Final

from sparklog.common import TopicPartition
from sparklog.fs import FileSystem
from sparklog.logdir.ledger import LEDGER, ledger_config
from sparklog.logdir.offset_checkpoints import CLEANER, HIGH_WATERMARK, LOG_START, RECOVERY_POINT
from sparklog.logdir.segment_files import segment_bases
from sparklog.service.verification.ledger import EPOCH_UNKNOWN, interval_of
from sparklog.service.verification.log_dir_state import (
    NO_LIMIT,
    ExpectedPartition,
    LogDirState,
    Offsets,
    Situation,
)
from sparklog.service.verification.offset_checkpoints import NAMES, Checkpoints

_CLAIMS: Final = (HIGH_WATERMARK, RECOVERY_POINT)


def expected_partition(
    fs: FileSystem, log_dir_state: LogDirState, checkpoints: Checkpoints, key: TopicPartition
) -> ExpectedPartition:
    """Return the expected state of a partition in the log dirs."""
    number = log_dir_state.found[key]
    known = {name: checkpoints[number, name] or {} for name in NAMES}
    part = ExpectedPartition(
        topic=key.topic,
        partition=key.partition,
        path=log_dir_state.path(key),
        situation=log_dir_state.situation,
        start=0,
        end=0,
        gaps_below=known[CLEANER].get(key, 0),
        recovery_point=known[RECOVERY_POINT].get(key, 0),
    )
    state = log_dir_state.state
    if key == LEDGER and log_dir_state.ledger_end:
        bases = segment_bases(fs, part.path)
        return replace(
            part,
            start=bases[0] if bases else 0,  # older segments are history and may expire
            end=log_dir_state.ledger_end,
            gaps_below=0,
            interval_bytes=ledger_config().index_interval_bytes,
            recovery_point=log_dir_state.ledger_end - 1,
        )
    if state is None or key not in state.ends or not log_dir_state.situation.is_ours:
        return _brokers(part, known)
    topic = state.topics[key.topic]
    config = topic.parsed()
    return replace(
        part.in_state(state),
        gaps_below=NO_LIMIT if config.compact else part.gaps_below,
        config=config,
        interval_bytes=interval_of(log_dir_state, key.topic, config),
        epoch=None if state.epoch == EPOCH_UNKNOWN else state.epoch,
        exact=not topic.adopted,
    )


def _brokers(part: ExpectedPartition, known: dict[str, Offsets]) -> ExpectedPartition:
    """Return the expectations for a broker's partition, from its checkpoints.

    The log must end at or after the lowest checkpoint, or a checkpoint is wrong.
    """
    situation = part.situation
    if situation.is_ours:  # without a ledger only the broker's files count
        situation = Situation.RUNNING if situation.is_live else Situation.ABANDONED
    names = _CLAIMS[:1] if situation is Situation.RUNNING else _CLAIMS
    claims = [known[name][part.key] for name in names if part.key in known[name]]
    return replace(
        part,
        situation=situation,
        start=known[LOG_START].get(part.key, 0),
        end=min(claims, default=0),
        exact=False,
    )
