"""Bounds to offsets: earliest, latest, explicit offsets and timestamps, for every partition."""

from collections.abc import Callable

from sparklog.errors import InvalidRequestError
from sparklog.source.offsets import EARLIEST, LATEST, Bound, Offsets, Partition, Ranges, name

Lookup = Callable[[dict[Partition, int]], dict[Partition, int | None]]
"""{(topic, partition): ms} -> the first offset that young, None where there is none."""


def resolve_start(bound: Bound, held: Ranges, lookup: Lookup, *, strategy: str) -> Offsets:
    """Return where each partition starts. `strategy` is startingOffsetsByTimestampStrategy.

    Raises: InvalidRequestError where partitions are missing or, by strategy, no record matches.
    """
    if bound.kind in ("offset", "offsets"):
        return _explicit(bound, held, "startingOffsets")
    times = _times(bound, held, "startingOffsetsByTimestamp")
    found = lookup(times)
    missed = sorted(name(p) for p in times if found[p] is None)
    if missed and strategy == "error":
        when = ", ".join(sorted({str(times[p]) for p in times if found[p] is None}))
        raise InvalidRequestError(
            f"no record of {', '.join(missed)} is as young as the starting timestamp ({when} ms): "
            "choose an earlier one, or startingOffsetsByTimestampStrategy=latest"
        )
    return {p: _or(found[p], held[p][1]) for p in times}


def resolve_end(bound: Bound, held: Ranges, lookup: Lookup) -> Offsets:
    """Return where each partition of a batch query ends; where no record matches, at the end."""
    if bound.kind in ("offset", "offsets"):
        return _explicit(bound, held, "endingOffsets")
    times = _times(bound, held, "endingOffsetsByTimestamp")
    found = lookup(times)
    return {p: _or(found[p], held[p][1]) for p in times}


def _or(offset: int | None, otherwise: int) -> int:
    return otherwise if offset is None else offset


def _explicit(bound: Bound, held: Ranges, option: str) -> Offsets:
    if bound.kind == "offset":
        values = dict.fromkeys(held, bound.value)
    else:
        values = _covering(bound.values, held, option)
    ends = {EARLIEST: 0, LATEST: 1}
    return {p: held[p][ends[v]] if v in ends else v for p, v in values.items()}


def _times(bound: Bound, held: Ranges, option: str) -> Offsets:
    if bound.kind == "time":
        return dict.fromkeys(held, bound.value)
    return _covering(bound.values, held, option)


def _covering(values: Offsets, held: Ranges, option: str) -> Offsets:
    missing, foreign = sorted(held.keys() - values.keys()), sorted(values.keys() - held.keys())
    if missing or foreign:
        wrong = [f"it lacks {name(p)}" for p in missing] + [
            f"{name(p)} is not in the log or not selected" for p in foreign
        ]
        raise InvalidRequestError(
            f"{option} must name every partition that is read, and no other: {'; '.join(wrong)}. "
            "Use -1 for latest, -2 for earliest"
        )
    return dict(values)
