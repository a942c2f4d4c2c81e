"""Options of the source on a checkpoint's state."""

import pytest

from sparklog.errors import InvalidRequestError
from sparklog.source.offsets import EARLIEST, LATEST
from sparklog.source.state_options import parse, reads_state


def test_defaults_and_any_case() -> None:
    found = parse({"PATH": "/c", "stateoperator": "2", "statestore": "left"}, streaming=True)
    assert (found.path, found.operator, found.store) == ("/c", 2, "left")
    assert (found.start(streaming=True), found.fail_on_data_loss) == (LATEST, True)
    batch = parse({"path": "/c", "stateOperator": "0"}, streaming=False)
    assert (batch.start(streaming=False), batch.end()) == (EARLIEST, LATEST)
    numbered = parse({"path": "/c", "stateOperator": "0", "startingOffsets": " 7 "})
    assert numbered.start(streaming=True) == 7


def test_who_reads_it_may_be_said() -> None:
    assert parse({"path": "/c", "stateOperator": "0"}).jvm
    assert not parse({"path": "/c", "stateOperator": "0", "JVM": "false"}).jvm
    with pytest.raises(InvalidRequestError, match="jvm=maybe: expected true or false"):
        parse({"path": "/c", "stateOperator": "0", "jvm": "maybe"})


def test_what_chooses_it() -> None:
    assert reads_state({"STATEOPERATOR": "0"})
    assert not reads_state({"path": "/log", "subscribe": "t"})


@pytest.mark.parametrize(
    ("given", "streaming", "reason"),
    [
        ({}, True, "option path is missing: give the query's checkpoint"),
        ({"stateOperator": "-1"}, True, r"stateOperator=-1: expected 0\.\.2\^31-1"),
        ({"subscribe": "t"}, True, "option subscribe has no meaning for a checkpoint's state"),
        ({"startingOffsets": "soon"}, True, "startingOffsets=soon: expected earliest, latest or"),
        ({"startingOffsets": "latest"}, False, "startingOffsets can't be latest in a batch"),
        ({"endingOffsets": "earliest"}, False, "endingOffsets can't be earliest"),
        ({"endingOffsets": "3"}, True, "endingOffsets is for batch queries"),
        ({"maxBatchesPerTrigger": "3"}, False, "maxBatchesPerTrigger is for streams"),
        ({"maxBatchesPerTrigger": "0"}, True, "maxBatchesPerTrigger=0: expected 1"),
    ],
)
def test_wrong_ones(given: dict[str, str], streaming: bool, reason: str) -> None:
    values = {"stateOperator": "0", **({"path": "/c"} if given else {}), **given}
    with pytest.raises(InvalidRequestError, match=reason):
        parse(values, streaming=streaming)
    if not given:
        assert parse({**values, "path": "/c"}, streaming=streaming).path == "/c"
