"""Resolve starting and ending offsets and timestamps for every partition."""

import logging
from collections.abc import Callable
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.source.offsets import EARLIEST, LATEST, Bound, Offsets, Ranges

_LOGGER: Final = logging.getLogger("sparklog.source")
TimeLookup = Callable[[dict[TopicPartition, int]], dict[TopicPartition, int | None]]
"""{(topic, partition): ms} -> first offset at or after that time, or None."""


def resolve_start(
    bound: Bound, held: Ranges, lookup: TimeLookup, *, strategy: str, fail: bool = True
) -> Offsets:
    """Return the start offset of each partition.

    Args:
        bound: The position at which the query starts.
        held: The offsets that the log contains.
        lookup: Looks up offsets by time.
        strategy: startingOffsetsByTimestampStrategy.
        fail: failOnDataLoss. If False, offsets past the end are replaced by the end, with a
            warning.

    Raises:
        InvalidRequestError: Partitions are missing, an offset is past the end or, depending on the
            strategy, no record matches.
    """
    if bound.kind in ("offset", "offsets"):
        return _explicit(bound, held, "startingOffsets", fail=fail)
    times = _times(bound, held, "startingOffsetsByTimestamp")
    offsets = lookup(times)
    missed = sorted(str(p) for p in times if offsets[p] is None)
    if missed and strategy == "error":
        when = ", ".join(sorted({str(times[p]) for p in times if offsets[p] is None}))
        raise InvalidRequestError(
            f"no record of {', '.join(missed)} is at or after the starting timestamp ({when} ms): "
            "set an earlier timestamp, or startingOffsetsByTimestampStrategy=latest"
        )
    return {p: _or(offsets[p], held[p][1]) for p in times}


def resolve_end(bound: Bound, held: Ranges, lookup: TimeLookup, *, fail: bool = True) -> Offsets:
    """Return the end offset of each partition of a batch query; the end if no record matches."""
    if bound.kind in ("offset", "offsets"):
        return _explicit(bound, held, "endingOffsets", fail=fail)
    times = _times(bound, held, "endingOffsetsByTimestamp")
    offsets = lookup(times)
    return {p: _or(offsets[p], held[p][1]) for p in times}


def _or(offset: int | None, otherwise: int) -> int:
    return otherwise if offset is None else offset


def _explicit(bound: Bound, held: Ranges, option: str, *, fail: bool) -> Offsets:
    if bound.kind == "offset":
        values = dict.fromkeys(held, bound.value)
    else:
        values = _covering(bound.values, held, option)
    # Indexes of a pair in `held`, which is (log start offset, end).
    ends = {EARLIEST: 0, LATEST: 1}
    offsets = {p: held[p][ends[v]] if v in ends else v for p, v in values.items()}
    past = {p: offset for p, offset in sorted(offsets.items()) if offset > held[p][1]}
    if past:
        shown = ", ".join(f"{p} ends at {held[p][1]}, not {o}" for p, o in past.items())
        reason = f"{option} is beyond the end of the log: {shown}"
        if fail:
            raise InvalidRequestError(
                f"{reason}. No record ever had this offset: set an offset up to the end, -1 for "
                "the end itself, or failOnDataLoss=false to use the end instead"
            )
        _LOGGER.warning("%s; the end is used", reason)
    return {p: min(offset, held[p][1]) for p, offset in offsets.items()}


def _times(bound: Bound, held: Ranges, option: str) -> Offsets:
    if bound.kind == "time":
        return dict.fromkeys(held, bound.value)
    return _covering(bound.values, held, option)


def _covering(values: Offsets, held: Ranges, option: str) -> Offsets:
    missing, foreign = sorted(held.keys() - values.keys()), sorted(values.keys() - held.keys())
    if missing or foreign:
        wrong = [f"it lacks {p}" for p in missing] + [
            f"{p} is not in the log or not selected" for p in foreign
        ]
        raise InvalidRequestError(
            f"{option} must name every partition that is read, and no other: {'; '.join(wrong)}. "
            "Use -1 for latest, -2 for earliest"
        )
    return dict(values)
