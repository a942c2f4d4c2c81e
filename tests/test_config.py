"""Options: names, ranges, precedence; and that Kafka's own LogConfig agrees."""

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.config import KEYS, LOG_KEYS, OWN_KEYS, LogOptions, TopicConfig, markdown
from sparklog.configdef import INT_MAX, LONG_MAX
from sparklog.errors import InvalidRequestError
from tests.oracle import OracleError


def test_defaults_are_kafkas(oracle):
    theirs = oracle.config({})
    assert not OWN_KEYS & theirs.keys()
    for name in KEYS.keys() - OWN_KEYS:
        key, want = KEYS[name], theirs.pop(name)
        assert key.default == (tuple(want) if isinstance(want, list) else want), name
    # Not ours: lists of replicas to throttle.
    assert set(theirs) == {f"{w}.replication.throttled.replicas" for w in ("leader", "follower")}


def test_fields_are_the_keys_in_snake_case():
    assert {k.field for k in KEYS.values()} == {
        f.name for f in dataclasses.fields(TopicConfig) if f.name != "explicit"
    }
    assert all(k.field == name.replace(".", "_") for name, k in KEYS.items())


def test_what_was_set_to_kafkas_default_counts_as_set():
    """And only that: not by a broker-wide name, nor by the topic defaults of a log."""
    config = TopicConfig.parse({"retention.ms": "604800000", "segment.ms": "5"})
    assert config.to_dict() == {"retention.ms": "604800000", "segment.ms": "5"}
    assert config == TopicConfig(segment_ms=5)  # it is the same to who goes by it
    assert TopicConfig.parse(config.to_dict()).to_dict() == config.to_dict()
    assert TopicConfig.parse({"log.retention.hours": "168"}).to_dict() == {}
    assert TopicConfig.parse({}, base=config).to_dict() == {"segment.ms": "5"}
    other = TopicConfig.parse({"log.retention.ms": "9"})
    assert TopicConfig.parse({"retention.ms": 604_800_000}, base=other).to_dict() == {
        "retention.ms": "604800000"
    }


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"retention.ms": "0", "log.retention.ms": "4"}, 0),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.hours": INT_MAX}, INT_MAX * 3_600_000),
    ],
)
def test_precedence_of_retention(given, want):
    for values in (given, dict(reversed(given.items()))):
        assert TopicConfig.parse(values).retention_ms == want


def test_other_synonyms():
    config = TopicConfig.parse(
        {
            "log.roll.hours": 2,
            "log.roll.jitter.hours": 0,
            "log.segment.bytes": 2**21,
            "log.cleanup.policy": ["compact", "delete"],
            "log.index.interval.bytes": "100",
            "message.max.bytes": 1000,
            "log.cleaner.min.cleanable.ratio": 1,
            "log.preallocate": "TRUE",
        }
    )
    assert config.segment_ms == 7_200_000
    assert config.segment_jitter_ms == 0
    assert config.segment_bytes == 2**21
    assert config.cleanup_policy == ("compact", "delete")
    assert config.index_interval_bytes == 100
    assert config.max_message_bytes == 1000
    assert config.min_cleanable_dirty_ratio == 1.0
    assert config.preallocate is True


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"segment.bytes": 1048575}, r"segment\.bytes=1048575: expected 1048576\.\.2\^31-1"),
        ({"log.segment.bytes": "1e7"}, r"log\.segment\.bytes=1e7: expected 1048576"),
        ({"segment.bytes": 2**31}, r"segment\.bytes=2147483648: expected"),
        ({"internal.segment.bytes": 13}, r"internal\.segment\.bytes=13: expected 14"),
        ({"retention.ms": -2}, r"retention\.ms=-2: expected -1\.\.2\^63-1"),
        ({"log.retention.ms": 0}, r"log\.retention\.ms=0: expected 1\.\.2\^63-1 or -1"),
        ({"log.roll.hours": 0}, r"log\.roll\.hours=0: expected 1"),
        ({"log.retention.hours": "x", "retention.ms": 1}, r"log\.retention\.hours=x"),
        ({"retention.ms": None}, r"retention\.ms=None"),
        ({"cleanup.policy": "keep"}, r"cleanup\.policy=keep: expected a list of compact, delete"),
        ({"compression.type": "LZ4"}, r"compression\.type=LZ4: expected one of uncompressed"),
        ({"compression.gzip.level": 0}, r"gzip\.level=0: expected 1\.\.9 or -1"),
        ({"preallocate": "yes"}, r"preallocate=yes: expected true or false"),
        ({"min.cleanable.dirty.ratio": "nan"}, r"dirty\.ratio=nan: expected 0\.\.1"),
        (
            {"segment.byte": 1},
            r"segment\.byte \(did you mean segment\.bytes\?\); the known options are .*flush",
        ),
        ({"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 4}, r"lag\.ms=5: expected at most"),
        ({"retention.ms": 10, "local.retention.ms": 11}, r"\.retention\.ms=11: expected at most"),
        ({"retention.bytes": 10, "local.retention.bytes": -1}, r"local\.retention\.bytes=-1"),
    ],
)
def test_refused_with_name_value_and_range(given, message):
    with pytest.raises(InvalidRequestError, match=message):
        TopicConfig.parse(given)


def test_a_field_out_of_range_is_refused_too():
    with pytest.raises(InvalidRequestError, match=r"segment\.bytes=1: expected"):
        TopicConfig(segment_bytes=1)
    with pytest.raises(InvalidRequestError, match=r"preallocate=1: expected"):
        TopicConfig(preallocate=1)


def test_what_is_not_named_stays():
    base = TopicConfig(segment_bytes=2**22, retention_ms=5)
    config = TopicConfig.parse({"retention.ms": "6"}, base=base)
    assert (config.segment_bytes, config.retention_ms) == (2**22, 6)


def test_when_a_segment_rolls():
    assert TopicConfig(internal_segment_bytes=100).roll_bytes == 100
    assert TopicConfig().roll_bytes == 2**30
    compacted = {"cleanup_policy": ("compact",), "max_compaction_lag_ms": 1000}
    assert TopicConfig(**compacted).roll_ms == 1000
    assert TopicConfig(max_compaction_lag_ms=1000).roll_ms == 604_800_000
    assert TopicConfig(segment_ms=10, segment_jitter_ms=50).jitter_bound_ms == 10


def test_log_options_carry_defaults_for_topics():
    given = {"flush": "none", "log.retention.hours": 1, "compression.type": "lz4"}
    options = LogOptions.parse(given)
    assert options.flush == "none"
    assert options.topics == TopicConfig(retention_ms=3_600_000, compression_type="lz4")
    with pytest.raises(InvalidRequestError, match=r"flush=often: expected one of commit, none"):
        LogOptions.parse({"flush": "often"})
    with pytest.raises(InvalidRequestError, match=r"unknown option log\.dirs"):
        LogOptions.parse({"log.dirs": "x"})


def test_the_table_for_the_docs_has_every_key():
    table = markdown([*KEYS.values(), *LOG_KEYS.values()])
    assert all(f"| `{name}` |" in table for name in [*KEYS, *LOG_KEYS])
    assert "records of a backfill, which are older. | 604800000 | -1..2" in table
    assert "| -1..2^63-1 | `log.retention.ms`, `log.retention.minutes`, " in table
    assert "also" not in markdown([LOG_KEYS["flush"]]).partition("\n")[0]


def _values(key):
    """Strategy: valid and invalid texts of one option."""
    if key.kind is bool:
        return st.sampled_from(["true", "FALSE", " true ", "1", "yes", ""])
    if key.kind is tuple:
        return st.lists(st.sampled_from(["compact", "delete", "keep"]), max_size=2).map(",".join)
    if key.kind is str:
        return st.sampled_from([*key.choices, key.choices[0].upper(), "nothing", ""])
    if key.kind is float:
        return st.sampled_from(["0", "1", "0.25", ".5", "1.0001", "-0.1", "x", "1e-3"])
    edges = {v + d for v in (0, 1, key.low, INT_MAX, LONG_MAX) for d in (-2, -1, 0, 1)}
    return st.sampled_from([*map(str, sorted(edges)), " 7 ", "+2000000", "1_000", "1.0", "x", ""])


@st.composite
def _configs(draw):
    names = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True))
    return {name: draw(_values(KEYS[name])) for name in names}


@given(_configs())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_kafka_agrees_on_what_is_valid(oracle, values):
    # Stricter here on purpose: the limits of tiering always hold, tiny segments have a floor.
    values.pop("internal.segment.bytes", None)
    for name in OWN_KEYS:
        values.pop(name, None)
    try:
        ours = TopicConfig.parse(values)
    except InvalidRequestError as error:
        if "local.retention" in str(error) or "remote.storage" in str(error):
            return
        with pytest.raises(OracleError):
            oracle.config(values)
        return
    theirs = oracle.config(values)
    for name in KEYS.keys() - OWN_KEYS:
        key = KEYS[name]
        want = tuple(theirs[name]) if isinstance(theirs[name], list) else theirs[name]
        assert getattr(ours, key.field) == want, name
    assert TopicConfig.parse(ours.to_dict()) == ours


def test_none_is_stored_as_uncompressed():
    parsed = TopicConfig.parse({"compression.type": "none"})
    assert parsed.compression_type == "uncompressed"
    assert parsed.to_dict() == {"compression.type": "uncompressed"}
    with pytest.raises(InvalidRequestError, match=r"compression\.type=nothing"):
        TopicConfig.parse({"compression.type": "nothing"})
