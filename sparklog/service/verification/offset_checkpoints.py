"""Checks Kafka's checkpoint files against the ledger, or a broker's own logs."""

from collections.abc import Mapping

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import parse_offsets
from sparklog.fs import FileSystem, read_bytes
from sparklog.logdir.offset_checkpoints import (
    CLEANER,
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    closed_offsets,
)
from sparklog.logdir.segment_files import joined
from sparklog.service.verification.findings import Findings, FixKind, Severity
from sparklog.service.verification.log_dir_state import LogDirState, Offsets, Situation

NAMES = (RECOVERY_POINT, LOG_START, HIGH_WATERMARK, CLEANER)
Checkpoints = dict[tuple[int, str], Offsets | None]
"""{(number of the log dir, file name): its entries, None if it is missing or damaged}"""


def read_checkpoints(fs: FileSystem, log_dir_state: LogDirState, out: Findings) -> Checkpoints:
    """Read all checkpoint files; report damaged files."""
    found: Checkpoints = {}
    for number, directory in log_dir_state.numbered:
        for name in NAMES:
            path = joined(directory, name)
            found[number, name] = None
            try:
                raw = read_bytes(fs, path)
                found[number, name] = parse_offsets(raw, path=path) if raw else {}
            except FileNotFoundError:
                pass
            except DataCorruptionError as error:
                out.add(Severity.DIFFERENCE, path, error.reason, fix=FixKind.CHECKPOINT)
    return found


def check_checkpoints(
    log_dir_state: LogDirState,
    known: Checkpoints,
    ends: Mapping[TopicPartition, int],
    out: Findings,
) -> None:
    """Compare checkpoints with log starts and ends. `ends` must not be older than `known`."""
    for number, directory in log_dir_state.numbered:
        mine = {key: end for key, end in ends.items() if log_dir_state.found.get(key) == number}
        for name in NAMES:
            offsets = known[number, name]
            if offsets is None:
                continue
            path = joined(directory, name)
            fault = _above(offsets, mine)
            if fault is None and log_dir_state.situation.is_ours:
                fault = _against_ledger(log_dir_state, name, offsets, mine)
            if fault is not None:
                is_cut = name == LOG_START and log_dir_state.situation is Situation.CRASHED
                severity = Severity.LEFTOVER if is_cut else Severity.DIFFERENCE
                out.add(severity, path, fault, fix=FixKind.CHECKPOINT)
        if log_dir_state.situation is Situation.CLOSED:
            for name in (RECOVERY_POINT, LOG_START, HIGH_WATERMARK):
                if known[number, name] is None and not _is_reported(out, joined(directory, name)):
                    out.add(
                        Severity.DIFFERENCE, joined(directory, name), "it is missing",
                        fix=FixKind.CHECKPOINT,
                    )  # fmt: skip
        if log_dir_state.situation is Situation.BROKER:
            _warn_below(known[number, HIGH_WATERMARK], mine, joined(directory, HIGH_WATERMARK), out)


def _is_reported(out: Findings, path: str) -> bool:
    return any(f.file == path for f in out.found)


def _above(offsets: Offsets, mine: Mapping[TopicPartition, int]) -> str | None:
    for key, offset in sorted(offsets.items()):
        if offset < 0:
            return f"it gives {key} the offset {offset}"
        if offset > mine.get(key, offset):
            return f"it gives {key} the offset {offset}, the log ends at {mine[key]}"
    return None


def _against_ledger(
    log_dir_state: LogDirState, name: str, offsets: Offsets, mine: Mapping[TopicPartition, int]
) -> str | None:
    state = log_dir_state.state
    if state is None or name == CLEANER:
        return None
    if name != LOG_START and log_dir_state.situation is not Situation.CLOSED:
        return None
    wanted = closed_offsets(dict(mine), state.starts)[name]
    for key, offset in sorted(wanted.items()):
        if offsets.get(key, 0 if name == LOG_START else None) != offset:
            return f"it gives {key} {offsets.get(key)}, the ledger says {offset}"
    if name == LOG_START:
        for key in sorted(offsets.keys() & mine.keys() - wanted.keys()):
            if offsets[key]:
                return f"it gives {key} {offsets[key]}, the ledger says 0"
    return None


def _warn_below(
    marks: Offsets | None, mine: Mapping[TopicPartition, int], path: str, out: Findings
) -> None:
    if not marks:
        return  # without an entry, readers read up to the log end
    for key, end in sorted(mine.items()):
        mark = marks.get(key, 0)
        if mark < end:
            out.add(
                Severity.WARNING,
                path,
                f"{key} goes on to {end}, readers see it up to {mark}",
                first=mark,
                end=end,
            )
