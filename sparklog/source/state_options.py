"""Options of the source that reads the state of a checkpoint, with `stateOperator`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.configdef import SPARKS_OWN, Key, Mode, SparkOptions, keys_of, option, read
from sparklog.errors import InvalidRequestError
from sparklog.source.jvm_caller import JvmCaller
from sparklog.source.offsets import EARLIEST, LATEST

CHOICE: Final = "stateOperator"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOptions:
    """The options as given."""

    path: str | None = option(
        "path", None, kind=str, required=True, doc="The checkpoint, accessible on every executor."
    )
    operator: int = option(
        CHOICE, 0, required=True, doc="Number of the stateful operator: a directory below `state`."
    )
    store: str = option(
        "stateStore", "default", doc="Its state store; a join has four, others only `default`."
    )
    column_family: str | None = option(
        "stateColumnFamily",
        None,
        kind=str,
        doc="transformWithState: the state variable to read, with key and value as plain structs. "
        "By default all variables, each in its own struct.",
    )
    starting_offsets: str | None = option(
        "startingOffsets",
        None,
        kind=str,
        doc="earliest, latest (streaming only) or a batch number. Default: latest for streaming, "
        "earliest for batch.",
    )
    ending_offsets: str | None = option(
        "endingOffsets",
        None,
        mode=Mode.BATCH,
        kind=str,
        doc="Batch only: latest (default) or a batch number, exclusive.",
    )
    max_batches_per_trigger: int | None = option(
        "maxBatchesPerTrigger",
        None,
        mode=Mode.STREAM,
        kind=int,
        low=1,
        doc="Streaming only: maximum number of batches of the checkpoint's query per micro-batch.",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        True,
        doc="Fail if Spark deleted changes that were not read (it retains about "
        "spark.sql.streaming.minBatchesToRetain batches), or if the query was reset to a batch "
        "before the last one read; false: warn with the exact batches and continue behind the "
        "deleted ones, or at the first batch that is computed again.",
    )
    jvm: bool = option(
        "jvm", True, doc="Accepted as for a log; without effect, because Python reads state."
    )

    def start(self, *, streaming: bool) -> int:
        """Return a batch number, EARLIEST or LATEST.

        Raises:
            InvalidRequestError: startingOffsets is invalid.
        """
        text = self.starting_offsets or ("latest" if streaming else "earliest")
        bound = _bound(text, "startingOffsets")
        if bound == LATEST and not streaming:
            raise InvalidRequestError("startingOffsets can't be latest in a batch query")
        return bound

    def end(self) -> int:
        """Return a batch number or LATEST.

        Raises:
            InvalidRequestError: endingOffsets is invalid.
        """
        bound = _bound(self.ending_offsets or "latest", "endingOffsets")
        if bound == EARLIEST:
            raise InvalidRequestError("endingOffsets can't be earliest")
        return bound


STATE_OPTIONS: Final[dict[str, Key]] = keys_of(StateOptions)
"""Option -> description, in the order of the docs."""

_SPARK: Final = SparkOptions(
    keys=STATE_OPTIONS,
    ignored=SPARKS_OWN | {"checkpointlocation"},
    unknown=f"option {{name}} has no meaning for a checkpoint's state ({CHOICE}), which knows "
    f"{', '.join(STATE_OPTIONS)}",
)


def reads_state(values: Mapping[str, object]) -> bool:
    """Return whether the options select a checkpoint's state."""
    return any(key.lower() == CHOICE.lower() for key in values)


def parse(values: Mapping[str, str], *, streaming: bool | None = None) -> StateOptions:
    """Parse and check the options of `spark.read` or `spark.readStream`; names in any case.

    Args:
        values: The options.
        streaming: Whether the query is a stream. None while Spark requests the schema, because
            Spark does not pass the kind of query then.

    Raises:
        InvalidRequestError: An option is unknown or invalid. The message names the option.
    """
    given = _SPARK.given(JvmCaller.parse(values)[1])
    fields, _ = read(STATE_OPTIONS.values(), given)
    options = StateOptions(**fields)
    if not options.path:
        raise InvalidRequestError("option path is missing: give the query's checkpoint")
    if streaming is not None:
        _SPARK.check_mode(given, streaming=streaming)
    options.start(streaming=streaming is not False)
    options.end()
    return options


def _bound(text: str, option: str) -> int:
    value = text.strip().lower()
    if value in ("earliest", "latest"):
        return EARLIEST if value == "earliest" else LATEST
    if not value.isdecimal():
        raise InvalidRequestError(f"{option}={text}: expected earliest, latest or a batch number")
    return int(value)
