"""The sink of a query, and how that sink treats batches that run again.

Spark's checkpoints don't name the sink. sparklog's checkpoint manager records the sink in
`sparklog.query` when a query starts: {"name": ..., "sink": {"class": ..., "description": ...}}. For
other checkpoints the caller names the sink.
"""

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sparklog.checkpoint.files import Checkpoint, local_path
from sparklog.checkpoint.log_backed.layout import QUERY
from sparklog.errors import InvalidRequestError
from sparklog.text_checks import path_text

Announce = Callable[[str], None]


class SinkKind(StrEnum):
    """Kinds of sinks, by how they handle a batch that comes a second time."""

    LOG = "sparklog"
    FILES = "files"
    DELTA = "delta"
    KAFKA = "kafka"
    FOREACH_BATCH = "foreachBatch"
    OTHER = "other"
    UNKNOWN = "unknown"


NAMED: Final = tuple(kind for kind in SinkKind if kind is not SinkKind.UNKNOWN)
_CLASSES: Final = (
    (r"FileStreamSink$", SinkKind.FILES),
    (r"\bdelta\b.*Sink$|DeltaSink$", SinkKind.DELTA),
    (r"Kafka", SinkKind.KAFKA),
    (r"ForeachBatchSink", SinkKind.FOREACH_BATCH),
)
_FILE_SINK: Final = re.compile(r"FileSink\[(.*)\]", re.DOTALL)
_SKIPS: Final = (
    "the Delta table remembers the newest batch of this query (a transactional identifier, by the "
    "query's id) and skips the batches after {batch} that it has already, without a message"
)
_EFFECTS: Final = {
    SinkKind.LOG: "Sink: the log has the batches after {batch} already and rejects them, "
    "unless the query writes to another log, or the log follows (--log LOG).",
    SinkKind.DELTA: f"Sink: {_SKIPS}.",
    SinkKind.KAFKA: "Sink: Kafka gets the rows of the batches after {batch} a second time.",
    SinkKind.FOREACH_BATCH: "Sink: foreachBatch calls its function again for the batches after "
    "{batch}. Whether the output is right depends on the function: it must replace what a batch "
    "with the same number wrote before. A SegmentSink rejects these batches, unless the log "
    "follows (--log LOG).",
    SinkKind.OTHER: "Sink: what it has of the batches after {batch} stays there.",
    SinkKind.UNKNOWN: "Sink: the checkpoint doesn't say what the query writes to. A sink that "
    "remembers batches (Spark's file sink, Delta) skips those after {batch} that it has already, "
    "without a message. Name the sink: --log LOG, --output DIRECTORY for Spark's file sink, or "
    "--sink.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySink:
    """The sink of a query.

    Attributes:
        output: The directory of a file sink, as the query or the caller names it.
        query_name: The name of the query, if known.
        follows: Whether the caller names the log that the query writes to, so that the log is reset
            or forked as well.
    """

    kind: SinkKind
    description: str = ""
    output: str | None = None
    query_name: str | None = None
    follows: bool = False

    def effect(self, batch: int) -> str:
        """Describe how the sink handles later batches than `batch`; "" if the sink is reset."""
        if self.follows:
            return ""
        return _EFFECTS.get(self.kind, "").format(batch=batch)


def recorded_sink(checkpoint: Checkpoint) -> QuerySink:
    """Return the sink that the checkpoint names, or UNKNOWN."""
    try:
        fields = json.loads(checkpoint.read(QUERY))
        sink, name = fields["sink"], fields.get("name")
        class_name, description = str(sink["class"]), str(sink["description"])
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return QuerySink(kind=SinkKind.UNKNOWN)
    kind = next((k for pattern, k in _CLASSES if re.search(pattern, class_name)), SinkKind.OTHER)
    match = _FILE_SINK.fullmatch(description)
    if description == SinkKind.LOG:
        kind = SinkKind.LOG
    return QuerySink(
        kind=kind,
        description=description,
        output=match[1] if match and kind is SinkKind.FILES else None,
        query_name=None if name is None else str(name),
    )


def query_name(checkpoint: Checkpoint) -> str | None:
    """Return the name of the query, if the checkpoint contains the name."""
    return recorded_sink(checkpoint).query_name


def choose_sink(
    checkpoint: Checkpoint,
    *,
    log: object,
    output: str | os.PathLike[str] | None,
    sink: str | None,
) -> QuerySink:
    """Return the sink that the caller names, otherwise the sink that the checkpoint names.

    Raises:
        InvalidRequestError: The caller and the checkpoint name different sinks; or the sink would
            skip the batches that run again, and the caller doesn't choose what happens then.
    """
    recorded = recorded_sink(checkpoint)
    if sink is not None and sink not in NAMED:
        raise InvalidRequestError(f"sink must be one of {', '.join(NAMED)}; got {sink!r}")
    if output is not None:
        return _file_sink(recorded, path_text(output), log, sink)
    if sink == SinkKind.FILES or (sink is None and log is None and recorded.output is not None):
        where = recorded.output or "a directory"
        raise InvalidRequestError(
            f"{checkpoint.path}: the query writes files to {where}, and Spark's file sink skips "
            "the batches that its _spark_metadata has already. Name the directory (--output), so "
            "that the log of the sink is changed as well; or use --sink other if the query will "
            "write to something else",
            path=checkpoint.path,
        )
    if sink is not None:
        return QuerySink(kind=SinkKind(sink))
    if log is not None:
        return QuerySink(kind=SinkKind.LOG, follows=True)
    if recorded.kind is SinkKind.DELTA:
        raise InvalidRequestError(
            f"{checkpoint.path}: the query writes to {recorded.description}, and "
            f"{_SKIPS.format(batch='the chosen batch')}. Begin a new query there with a new "
            "checkpoint instead; or use --sink delta to continue anyway",
            path=checkpoint.path,
        )
    return recorded


def _file_sink(recorded: QuerySink, output: str, log: object, sink: str | None) -> QuerySink:
    local = local_path(output)
    if log is not None or sink not in (None, SinkKind.FILES):
        raise InvalidRequestError(
            "output names the directory of a file sink: leave out log and other sinks"
        )
    if local is None:
        raise InvalidRequestError(
            f"{output}: the log of a file sink can be changed in a directory of this machine only. "
            "Give the query a new checkpoint and a new output directory",
            path=output,
        )
    if sink is None and recorded.kind not in (SinkKind.FILES, SinkKind.UNKNOWN):
        raise InvalidRequestError(
            f"the checkpoint says that its query writes to {recorded.description}, not to files in "
            f"{output}: leave out --output, or use --sink files as well",
            path=output,
        )
    known = None if recorded.output is None else local_path(recorded.output)
    if sink is None and known is not None and os.path.realpath(known) != os.path.realpath(local):
        raise InvalidRequestError(
            f"the checkpoint says that its query writes to {known}, not to {output}: use the first "
            "directory, or add --sink files if the output was moved",
            path=output,
        )
    return QuerySink(kind=SinkKind.FILES, output=local)
