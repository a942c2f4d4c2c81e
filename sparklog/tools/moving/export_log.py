"""A range of a topic as a log of its own: offsets are kept, and a broker loads a log dir."""

import os
from collections.abc import Mapping
from typing import Any, Final

from sparklog.clock import monotonic_ms
from sparklog.errors import InvalidRequestError
from sparklog.log.log import Log
from sparklog.log.positions import Position
from sparklog.logdir.paths import split_path
from sparklog.opening import open_log, same_place
from sparklog.storage.staging import Framing
from sparklog.tools.moving.exporting import (
    Exported,
    Meter,
    Offsets,
    Progress,
    pieces,
    planned,
    resumed,
)
from sparklog.tools.moving.placing import COMMIT_BYTES, Run, commit_runs, copied_ends

_COLUMNS: Final = ("key", "value", "headers", "timestamp", "offset")
_NOT_KEPT: Final = ("message.timestamp.type", "remote.", "local.")


def export_log(
    log: Log,
    topic: str,
    to: str | os.PathLike[str],
    *,
    start: Position = "earliest",
    end: Position = "latest",
    isolation: str = "read_committed",
    framing: Framing | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Copy the records of [start, end) to the log at `to`; a second time, what has come since.

    `to`: a log dir, or a store's URL. It is made where it isn't there; the topic in it begins at
    `start` of the first export. Closed, each partition directory of a log dir is one that a broker
    loads. Timestamps stay, as CreateTime; transactions and producers' sequences don't, aborted
    records are left out. `storage_options`: fsspec's, of the store.
    Raises: InvalidRequestError: `to` holds a topic of this name that came from elsewhere;
        OffsetOutOfRangeError; as `Log.read` and `Log.append`.
    """
    began = monotonic_ms()
    done = Exported(topic=topic, to=os.fspath(to))
    ours = split_path(log.path)
    if any(same_place(one, other) for one in split_path(to) for other in ours):
        raise InvalidRequestError(f"{to} is the log itself: choose another place")
    info = log.topic(topic)
    first, last = planned(log, topic, start, end, isolation)
    config = {k: v for k, v in info.config.to_dict().items() if not k.startswith(_NOT_KEPT)}
    writer = f"export/{info.id}/{topic}"
    with open_log(to, mode="rw", storage_options=storage_options) as target:
        if topic not in target.topics():
            target.create_topic(topic, len(first), config, starts=first)
        ends = copied_ends(target, topic, writer, f"topic {topic} in {log.path}")
        at = resumed(log, topic, first, last, ends, done.to)
        if len(first) > len(ends):
            target.alter_topic(topic, partitions=len(first))
            ends = {p: end for p, (_, end) in target.offsets(topic).items()}
        meter = Meter(at, last, progress)
        for p in at:
            _copy(log, target, topic, p, (at[p], last[p]), ends, writer, framing, isolation,
                  done, meter)  # fmt: skip
    done.took_ms = int(monotonic_ms() - began)
    return done


def _copy(
    log: Log,
    target: Log,
    topic: str,
    p: int,
    span: tuple[int, int],
    ends: Offsets,
    writer: str,
    framing: Framing | None,
    isolation: str,
    done: Exported,
    meter: Meter,
) -> None:
    """Copy one partition, commit after commit."""
    at, end = ends[p], span[1]
    run = Run(at, at)

    def commit(upto: int) -> Run:
        run.end = upto
        commit_runs(target, topic, {p: run}, writer=writer, framing=framing)
        done.records += sum(rows.num_rows for rows in run.rows)
        done.offsets[p] = (span[0], upto)
        meter.add(upto - max(run.start, span[0]))
        return Run(upto, upto)

    for rows in pieces(log, topic, p, *span, isolation=isolation, columns=_COLUMNS):
        run.rows.append(rows)
        if run.nbytes >= COMMIT_BYTES:
            run = commit(rows.column("offset")[rows.num_rows - 1].as_py() + 1)
    if run.start < end:
        commit(end)
