"""Resolves starting and ending offsets and timestamps, for every partition."""

import logging
from collections.abc import Callable
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.source.offsets import EARLIEST, LATEST, Bound, Offsets, Ranges

_LOGGER: Final = logging.getLogger("sparklog.source")
TimeLookup = Callable[[dict[TopicPartition, int]], dict[TopicPartition, int | None]]
"""{(topic, partition): ms} -> the first offset that young, None where there is none."""


def resolve_start(
    bound: Bound, held: Ranges, lookup: TimeLookup, *, strategy: str, fail: bool = True
) -> Offsets:
    """Return where each partition starts. `strategy` is startingOffsetsByTimestampStrategy.

    Args: fail: failOnDataLoss; if false, what lies past the end is moved there with a warning.
    Raises: InvalidRequestError where partitions are missing, an offset lies past the end or, by
    strategy, no record matches.
    """
    if bound.kind in ("offset", "offsets"):
        return _explicit(bound, held, "startingOffsets", fail=fail)
    times = _times(bound, held, "startingOffsetsByTimestamp")
    found = lookup(times)
    missed = sorted(str(p) for p in times if found[p] is None)
    if missed and strategy == "error":
        when = ", ".join(sorted({str(times[p]) for p in times if found[p] is None}))
        raise InvalidRequestError(
            f"no record of {', '.join(missed)} is as young as the starting timestamp ({when} ms): "
            "choose an earlier one, or startingOffsetsByTimestampStrategy=latest"
        )
    return {p: _or(found[p], held[p][1]) for p in times}


def resolve_end(bound: Bound, held: Ranges, lookup: TimeLookup, *, fail: bool = True) -> Offsets:
    """Return where each partition of a batch query ends; where no record matches, at the end."""
    if bound.kind in ("offset", "offsets"):
        return _explicit(bound, held, "endingOffsets", fail=fail)
    times = _times(bound, held, "endingOffsetsByTimestamp")
    found = lookup(times)
    return {p: _or(found[p], held[p][1]) for p in times}


def _or(offset: int | None, otherwise: int) -> int:
    return otherwise if offset is None else offset


def _explicit(bound: Bound, held: Ranges, option: str, *, fail: bool) -> Offsets:
    if bound.kind == "offset":
        values = dict.fromkeys(held, bound.value)
    else:
        values = _covering(bound.values, held, option)
    ends = {EARLIEST: 0, LATEST: 1}
    found = {p: held[p][ends[v]] if v in ends else v for p, v in values.items()}
    past = {p: offset for p, offset in sorted(found.items()) if offset > held[p][1]}
    if past:
        words = ", ".join(f"{p} ends at {held[p][1]}, not {o}" for p, o in past.items())
        said = f"{option} lies past the end: {words}"
        if fail:
            raise InvalidRequestError(
                f"{said}. No record was ever there: give an offset up to the end, -1 for the end "
                "itself, or failOnDataLoss=false to take the end instead"
            )
        _LOGGER.warning("%s; the end is taken", said)
    return {p: min(offset, held[p][1]) for p, offset in found.items()}


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
