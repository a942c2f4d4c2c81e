"""Options of the source: names, precedence, what is refused and how the message helps."""

import pytest

from sparklog.configdef import parse_duration_ms
from sparklog.errors import InvalidRequestError
from sparklog.source.offsets import EARLIEST, LATEST, Bound
from sparklog.source.options import OPTIONS, REFUSED, SourceOptions, parse

BASE = {"path": "/log", "subscribe": "t"}


def read(*, streaming: bool = False, **more: str) -> SourceOptions:
    return parse({**BASE, **more}, streaming=streaming)


def test_names_come_in_any_case() -> None:
    options = read(minpartitions="4", INCLUDEHEADERS="TRUE", failondataloss="false")
    assert (options.min_partitions, options.include_headers) == (4, True)
    assert not options.fail_on_data_loss


def test_defaults_are_the_connectors() -> None:
    assert read().start(streaming=False) == Bound("offset", EARLIEST)
    assert read(streaming=True).start(streaming=True) == Bound("offset", LATEST)
    assert read().end() == Bound("offset", LATEST)
    assert read().fail_on_data_loss
    assert not read().include_headers
    assert read().jvm
    assert not read(jvm="false").jvm
    assert read().max_trigger_delay_ms == 15 * 60_000
    assert read().isolation_level == "read_uncommitted"


def test_timestamp_goes_before_offsets_by_timestamp_before_offsets() -> None:
    by_time = '{"t":{"0":5}}'
    start = read(
        startingTimestamp="7", startingOffsetsByTimestamp=by_time, startingOffsets="earliest"
    ).start(streaming=False)
    assert start == Bound("time", 7)
    start = read(startingOffsetsByTimestamp=by_time, startingOffsets="earliest")
    assert start.start(streaming=False) == Bound("times", values={("t", 0): 5})
    end = read(endingTimestamp="7", endingOffsetsByTimestamp=by_time, endingOffsets="latest").end()
    assert end == Bound("time", 7)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"path": ""}, "path is missing"),
        ({"subscribe": None}, "exactly one of assign, subscribe, subscribePattern"),
        ({"assign": '{"t":[0]}'}, "exactly one of"),
        ({"subscribe": " , "}, "option subscribe is empty: name at least one topic"),
        ({"startingOffsets": "latest"}, "can't be latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "can't be latest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "can't be earliest"),
        ({"endingOffsets": "earliest"}, "can't be earliest"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "the offset of t-0 must be 0 or more.*got -3"),
        ({"endingOffsets": '{"t":{"0":-9}}'}, "endingOffsets: the offset of t-0 must be .* got -9"),
        ({"subscribe": None, "subscribePattern": "(?x)a"}, "the flag x is not supported"),
        ({"startingOffsets": "soon"}, r'startingOffsets=soon: expected JSON .* or "earliest"'),
        ({"startingOffsetsByTimestamp": '{"t":5}'}, "startingOffsetsByTimestamp="),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss=maybe: expected true or false"),
        ({"minPartitions": "0"}, "minPartitions=0: expected 1.."),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay=soon"),
        ({"startingOffsetsByTimestampStrategy": "none"}, "one of error, latest"),
        ({"kafka.isolation.level": "dirty"}, "read_uncommitted, read_committed"),
        (
            {"startingOffset": "earliest"},
            r"unknown option startingOffset \(did you mean startingOffsets\?\); the source knows",
        ),
        (
            {"startingTimestamp": "2024-01-01"},
            r"startingTimestamp=2024-01-01: expected .* ms since 1970",
        ),
        ({"kafka.bootstrap.servers": "x:1"}, "use option path"),
        ({"kafka.security.protocol": "SSL"}, "kafka.security.protocol has no meaning"),
    ],
)
def test_wrong_options_are_named(values: dict[str, str | None], words: str) -> None:
    given = {k: v for k, v in (BASE | values).items() if v is not None}
    with pytest.raises(InvalidRequestError, match=words):
        parse(given, streaming=False)


@pytest.mark.parametrize("name", ["error", "ERROR", "Latest"])
def test_strategies_are_known_in_any_case(name: str) -> None:
    assert read(startingOffsetsByTimestampStrategy=name).strategy == name.lower()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_each_refused_option_says_why(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"option {name} has no meaning"):
        read(**{name.lower(): "x"})


def test_a_trigger_that_waits_for_more_than_it_takes_is_refused() -> None:
    limits = {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}
    with pytest.raises(InvalidRequestError, match="=9: expected at most maxOffsetsPerTrigger=8"):
        read(streaming=True, **limits)
    assert read(streaming=True, **{**limits, "minOffsetsPerTrigger": "8"})


def test_no_option_is_both_known_and_refused() -> None:
    assert not {n.lower() for n in OPTIONS} & {n.lower() for n in REFUSED}


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "pushdown"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "1", "pushdown": "true"}[name]
    with pytest.raises(InvalidRequestError, match=f"{name} is for batch"):
        read(streaming=True, **{name: value})


@pytest.mark.parametrize(
    "name",
    ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger"],
)
def test_a_batch_query_has_no_triggers(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"{name} is for streams"):
        read(**{name: "1"})
    assert read(streaming=True, **{name: "1"})


def test_every_option_of_the_connector_is_known_or_refused_by_name() -> None:
    """Those of Spark's guide; `kafka.*` beside the named ones is refused as a whole."""
    guide = """
        assign subscribe subscribePattern kafka.bootstrap.servers startingTimestamp
        startingOffsetsByTimestamp startingOffsets endingTimestamp endingOffsetsByTimestamp
        endingOffsets failOnDataLoss kafkaConsumer.pollTimeoutMs fetchOffset.numRetries
        fetchOffset.retryIntervalMs maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay
        minPartitions maxRecordsPerPartition groupIdPrefix kafka.group.id includeHeaders
        startingOffsetsByTimestampStrategy kafka.isolation.level kafka.auto.offset.reset
        kafka.key.deserializer kafka.value.deserializer kafka.enable.auto.commit
        kafka.interceptor.classes
    """
    assert set(guide.split()) <= OPTIONS.keys() | REFUSED.keys()


def test_bad_pattern_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"subscribePattern=\("):
        parse({"path": "/log", "subscribePattern": "("}, streaming=True)


def test_what_spark_adds_by_itself_is_let_through() -> None:
    assert read(streaming=True, queryName="q", checkpointLocation="/c").path == "/log"


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("2 h", 7_200_000), ("30s", 30_000), ("250", 250)]
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text, name="x") == ms
