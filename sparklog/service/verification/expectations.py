"""What must hold for each partition: from the ledger, or from a broker's checkpoints."""

from dataclasses import replace
from typing import Final

from sparklog.fs import FileSystem
from sparklog.logdir.ledger import LEDGER, ledger_config
from sparklog.logdir.offset_checkpoints import CLEANER, HIGH_WATERMARK, LOG_START, RECOVERY_POINT
from sparklog.logdir.segment_files import segment_bases
from sparklog.service.verification.ledger import EPOCH_UNKNOWN, interval_of
from sparklog.service.verification.log_dir_state import (
    NO_LIMIT,
    Key,
    Offsets,
    Part,
    Situation,
    Truth,
)
from sparklog.service.verification.offset_checkpoints import NAMES, Checkpoints

_CLAIMS: Final = (HIGH_WATERMARK, RECOVERY_POINT)


def part_of(fs: FileSystem, truth: Truth, checkpoints: Checkpoints, key: Key) -> Part:
    """Return what is known of a partition that lies here."""
    number = truth.found[key]
    known = {name: checkpoints[number, name] or {} for name in NAMES}
    part = Part(
        topic=key[0],
        partition=key[1],
        path=truth.path(key),
        situation=truth.situation,
        start=0,
        end=0,
        gaps_below=known[CLEANER].get(key, 0),
        recovery_point=known[RECOVERY_POINT].get(key, 0),
    )
    state = truth.state
    if key == LEDGER and truth.ledger_end:
        bases = segment_bases(fs, part.path)
        return replace(
            part,
            start=bases[0] if bases else 0,  # older segments are history and may expire
            end=truth.ledger_end,
            gaps_below=0,
            interval_bytes=ledger_config().index_interval_bytes,
            recovery_point=truth.ledger_end - 1,
        )
    if state is None or key not in state.ends or not truth.situation.is_ours:
        return _brokers(part, known)
    topic = state.topics[key[0]]
    config = topic.parsed()
    return replace(
        part,
        start=state.starts.get(key, 0),
        local_start=state.local_start(*key),
        end=state.ends[key],
        gaps_below=NO_LIMIT if config.compact else part.gaps_below,
        config=config,
        interval_bytes=interval_of(truth, key[0], config),
        epoch=None if state.epoch == EPOCH_UNKNOWN else state.epoch,
        exact=not topic.adopted,
    )


def _brokers(part: Part, known: dict[str, Offsets]) -> Part:
    """A broker's checkpoints: the log goes at least as far as the lowest, or one is wrong."""
    situation = part.situation
    if situation.is_ours:  # without a ledger nobody of us can tell
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
