"""The sink's parts that need no Spark session: options, place, messages, estimate, identity."""

import json
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.config import TopicConfig
from sparklog.errors import (
    InvalidRequestError,
    LogReplacedError,
    PartitionOfflineError,
    RecordTooLargeError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.format.compression import Codec
from sparklog.fs import read_bytes
from sparklog.logdir.log_dir_check import DriverLogDir
from sparklog.sink.batch_identity import identify_from_checkpoint, identify_from_query
from sparklog.sink.options import REFUSED, parse
from sparklog.sink.query import Query, source_offsets
from sparklog.sink.size_estimate import SMALL_BYTES, SizeEstimate, total
from sparklog.sink.task import answer_of, parse_answer
from sparklog.sink.topic_options import ineffective_options, warn_of_ineffective
from sparklog.storage.chunk_table import ChunkTable
from sparklog.storage.commits import Chunk
from sparklog.storage.query_origin import BatchStart
from sparklog.storage.staging import Framing
from sparklog.testing.crashfs import CrashFS


@pytest.mark.parametrize(
    ("sink", "topic", "wanted"),
    [
        ({"compression.type": "zstd", "compression.zstd.level": 19}, {}, (Codec.ZSTD, 19)),
        ({"compression.type": "zstd", "compression.level": 19}, {}, (Codec.ZSTD, 19)),
        ({"compression.type": "zstd", "compression.zstd.level": 19},
         {"compression.type": "gzip", "compression.gzip.level": 4}, (Codec.GZIP, 4)),
        ({"compression.type": "zstd", "compression.level": 7},
         {"compression.type": "gzip"}, (Codec.GZIP, -1)),
        ({"compression.type": "zstd", "compression.level": 7},
         {"compression.type": "zstd", "compression.zstd.level": 5}, (Codec.ZSTD, 7)),
        ({"compression.type": "zstd", "compression.level": 7},
         {"compression.type": "uncompressed"}, (Codec.NONE, None)),
        ({"compression.type": "lz4"}, {"compression.lz4.level": 12}, (Codec.LZ4, 12)),
    ],
)  # fmt: skip
def test_a_level_applies_to_its_own_codec(
    sink: dict[str, object], topic: dict[str, object], wanted: tuple[Codec, int | None]
) -> None:
    framing = parse({"path": "/log", **sink}).framing
    assert framing.compression(TopicConfig.parse(topic)) == wanted


def test_a_level_without_a_codec_is_the_topics() -> None:
    config = TopicConfig.parse({"compression.type": "gzip"})
    assert Framing(level=4).compression(config) == (Codec.GZIP, 4)


@pytest.mark.parametrize("name", ["compression.gzip.level", "compression.level"])
def test_gzip_has_no_level_0(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"level[ =].*0"):
        _ = parse({"path": "/log", "compression.type": "gzip", name: 0}).framing


def test_options_come_under_kafkas_names_or_with_underscores() -> None:
    given = {"path": "/log", "batch_size": 1000, "compression.type": "zstd", "segment_bytes": 2**21}
    options = parse({**given, "compression.zstd.level": "7", "includeheaders": "false"})
    framing = options.framing
    assert (framing.batch_size, framing.codec, framing.level) == (1000, Codec.ZSTD, 7)
    levels = {"compression.zstd.level": 7, "compression.level": 3}
    assert parse({**given, **levels}).framing.level == 7
    assert parse({**given, **levels, "compression.type": "lz4"}).framing.level == 3
    assert options.topic_config.segment_bytes == 2**21
    assert options.topic_config.retention_ms == -1  # the sink's own departure
    assert not options.include_headers
    assert parse({"path": "/log"}).jvm is None  # as the session says
    assert parse({"path": "/log", "jvm": "true"}).jvm
    assert parse({"path": "/log", "jvm": "false"}).jvm is False  # as Spark's options give it
    assert parse({"path": "/log", "jvm": False}).jvm is False  # as SegmentSink's do


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"path": None}, "path is missing"),
        ({"topic": "a/b"}, "a/b"),
        ({"batch.sise": 5}, r"unknown option batch\.sise \(did you mean batch\.size\?\)"),
        ({"partiton": 5}, r"partiton \(did you mean partitions\?\)"),
        ({"colour": 5}, "unknown option colour; the sink knows"),
        ({"retention_ms": "7d"}, r"retention\.ms=7d: expected -1\.\.2\^63-1, in milliseconds"),
        ({"compression.type": "rar"}, "expected one of none"),
        ({"name": "\ud800"}, "name .* half a surrogate pair"),
        ({"writerId": "\ud800"}, "writerId .* half a surrogate pair"),
        ({"segment.bytes": 5}, r"segment\.bytes=5: expected"),
        ({"kafka.client.id": "x"}, r"kafka\.client\.id has no meaning"),
        *[({name: "x"}, f"option {name} has no meaning") for name in REFUSED],
    ],
)
def test_wrong_options_are_named(more: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        parse({"path": "/log", **more})


def test_options_that_a_topic_which_exists_has_otherwise(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    given = {"path": path, "topic": "t"}
    with sparklog.open(path, "rw") as log:
        held = log.create_topic("t", 4, {"compression.type": "zstd", "log.retention.hours": 1})

    def told(**more: object) -> str | None:
        return ineffective_options(parse({**given, **more}), held, path)

    assert told() is told(batch_size=1, flush="none") is None
    assert told(partitions=4, **{"retention.ms": 3_600_000, "segment.bytes": 1 << 30}) is None
    text = told(partitions=6, **{"max.message.bytes": 5_000_000})
    assert text is not None
    assert "max.message.bytes=5000000 (the topic has 1048588), partitions=6 (it has 4)" in text
    assert f"configs alter {path} --topic t --add-config max.message.bytes=5000000" in text
    assert f"topics alter {path} --topic t --partitions 6" in text
    assert "can't be reduced" in (told(partitions=2) or "")
    assert "log.retention" not in (told(log_retention_hours=2) or "log.retention")
    assert "compression.type=lz4 (the topic has zstd)" in (told(compression_type="lz4") or "")
    assert "cleanup.policy=[compact,delete]" in (told(cleanup_policy="compact,delete") or "")
    for command in text.partition("To change the topic: ")[2].split("; "):
        assert run(command.split()[1:]) == 0
    with sparklog.open(path) as log:
        held = log.topic("t")
    assert told(partitions=6, **{"max.message.bytes": 5_000_000}) is None


def test_differences_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        held = log.create_topic("t", 4)
    options = parse({"path": "/log", "topic": "t", "partitions": 5})
    with caplog.at_level(logging.WARNING, "sparklog.sink"):
        for _ in range(3):
            warn_of_ineffective(options, held, "/log")
    assert caplog.text.count("already existed") == 1


def test_place_is_known_by_boot_and_inode(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw"):
        place = DriverLogDir.read(str(tmp_path / "log"))
        place.check()
        replace(place, device=place.device + 1).check()  # another mount of the same file
        for other in (
            replace(place, boot="another", device=0),
            replace(place, boot="another", home=str(tmp_path / "nowhere")),
        ):
            with pytest.raises(InvalidRequestError, match=rf"host .* can't see .*{other.home}"):
                other.check()
        for other in (
            replace(place, inode=place.inode + 1),
            replace(place, home=str(tmp_path / "nowhere")),
        ):
            with pytest.raises(LogReplacedError, match=rf"{other.home} was removed or replaced"):
                other.check()
        DriverLogDir.read(place.home).check()  # as it is planned anew


def test_chunks_and_errors_travel_as_bytes() -> None:
    chunk = Chunk(
        topic="t", partition=1, data=b"abc", size_bytes=3, records=1, min_timestamp=5,
        max_timestamp=6,
    )  # fmt: skip
    staged = replace(chunk, data=None, path="/log/sparklog-chunk-x", synced_boot_id="boot")
    tasks = [ChunkTable.of([chunk, staged]), ChunkTable.of([])]
    told = [parse_answer(answer_of(lambda task=task: task)) for task in tasks]
    tables = [table for table in told if isinstance(table, ChunkTable)]
    assert [each for table in tables for each in table.chunks()] == [chunk, staged]
    error = parse_answer(answer_of(partial(fail, RecordTooLargeError("too large"))))
    assert (type(error), str(error)) == (RecordTooLargeError, "too large")
    gone = PartitionOfflineError("its log dir isn't there", path="/gone/t-1")
    error = parse_answer(answer_of(partial(fail, gone)))
    assert (type(error), str(error)) == (PartitionOfflineError, str(gone))
    assert isinstance(error, PartitionOfflineError)
    assert error.path == "/gone/t-1"
    with pytest.raises(StorageUnavailableError):  # Spark tries the task again
        answer_of(partial(fail, StorageUnavailableError("no answer")))


def fail(error: SparklogError) -> ChunkTable:
    raise error


def offsets(count: int) -> bytes:
    return f'v1\n{{"batchTimestampMs":{count}}}\n{{"t":{{"0":{count},"1":0}}}}\n-'.encode()


def test_guess_follows_the_last_batch_and_the_planned_step() -> None:
    assert total(offsets(7)) == 7
    assert total(b'v1\n{}\n{"t":{"0":7},"t#epoch":{"0":217518351},"t#since":{"0":4}}') == 7
    estimate = SizeEstimate()
    assert not estimate.is_small(offsets(100))  # nothing is known yet
    estimate.learn(offsets(100), 10_000)
    estimate.learn(offsets(200), 10_000)
    assert estimate.is_small(offsets(300))
    assert not estimate.is_small(offsets(200 + 100 * (SMALL_BYTES // 10_000 + 1)))
    estimate.learn(offsets(300), SMALL_BYTES + 1)
    assert not estimate.is_small(offsets(400))


def test_a_log_within_its_querys_checkpoint_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By whatever name; the other way round it is a warning, once."""
    checkpoint, log = tmp_path / "checkpoint", tmp_path / "log"
    for root in (checkpoint, log / "checkpoint"):
        (root / "offsets").mkdir(parents=True)
        (root / "offsets" / "3").write_bytes(offsets(1))
        (root / "metadata").write_text('{"id":"query"}')
    (tmp_path / "link").symlink_to(checkpoint)

    def identify(path: object, root: object = checkpoint) -> None:
        identify_from_checkpoint(parse({"path": str(path), "checkpointLocation": str(root)}), 3)

    for path in (
        checkpoint / "sparklog", f"file:{checkpoint}/logs/out", tmp_path / "link" / "sparklog",
        f"{log},{checkpoint}/second", checkpoint,
    ):  # fmt: skip
        with pytest.raises(InvalidRequestError, match="is inside the query's checkpoint"):
            identify(path)
    with pytest.raises(InvalidRequestError, match="is inside the query's checkpoint"):
        identify(checkpoint / "sparklog", tmp_path / "link")
    def said() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.name.startswith("sparklog")]

    identify(log)
    assert said() == []
    for _ in range(2):
        identify(log, log / "checkpoint")
    assert ["a Kafka broker would not start there" in text for text in said()] == [True]


def test_identity_of_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_bytes(offsets(1))
    (tmp_path / "metadata").write_text('{"id":"query"}')
    options = parse({"path": "/log", "checkpointLocation": f"file:{tmp_path}", "name": "second"})
    first = identify_from_checkpoint(options, 3).identity
    assert (first.writer, first.batch) == ("query/second", 3)
    (tmp_path / "offsets" / "3").write_bytes(offsets(2))
    assert identify_from_checkpoint(options, 3).identity.fingerprint != first.fingerprint
    with pytest.raises(InvalidRequestError, match=r"offsets/4 can't be read"):
        identify_from_checkpoint(options, 4)
    with pytest.raises(InvalidRequestError, match=r"unknown: set .option\('checkpointLoc"):
        identify_from_checkpoint(parse({"path": "/log"}), 3)
    given = parse({"path": "/log", "checkpointLocation": str(tmp_path)})
    assert identify_from_checkpoint(given, 3).identity.writer == "query"
    for wrong in ("s3a://b/c", f"{tmp_path}/nowhere"):
        advice = "set option checkpointLocation to the query's own checkpoint, as a path that the"
        with pytest.raises(InvalidRequestError, match=advice):
            named = {"path": "/log", "checkpointLocation": wrong, "writerId": "w"}
            identify_from_query(parse(named), None, 3)
    given = parse({"path": "/log", "checkpointLocation": str(tmp_path), "writerId": "w"})
    assert identify_from_query(given, None, 3).identity.batch == 3
    with pytest.raises(InvalidRequestError, match=r"writerId .*checkpointLocation"):
        identify_from_query(options, None, 3)
    with pytest.raises(InvalidRequestError, match="foreachBatch and SegmentSink"):
        identify_from_checkpoint(parse({"path": "/log", "checkpointLocation": "s3a://b/c"}), 3)


def test_what_an_identity_says_of_its_query(tmp_path: Path) -> None:
    """Its checkpoint wherever a link leads, where the micro-batch begins, who chose its name."""
    root, link = tmp_path / "checkpoint", tmp_path / "link"
    (root / "offsets").mkdir(parents=True)
    (root / "metadata").write_text('{"id":"query"}')
    for batch in (0, 2, 3):
        (root / "offsets" / str(batch)).write_bytes(offsets(batch))
    link.symlink_to(root)
    given = {"path": "/log", "checkpointLocation": str(link)}
    for batch, start in ((0, BatchStart()), (3, BatchStart(source_offsets(offsets(2))))):
        origin = identify_from_checkpoint(parse(given), batch).identity.origin
        assert origin is not None and origin.look is not None
        assert (origin.checkpoint, origin.ends) == (str(root), source_offsets(offsets(batch)))
        assert not origin.is_meant
        assert origin.look() == start
    chosen = identify_from_checkpoint(parse({**given, "writerId": "mine"}), 3).identity
    assert chosen.origin is not None and chosen.origin.is_meant
    query = Query("query", "run", str(root), "app", None)
    for options, writer in ((given, "query"), ({**given, "writerId": "mine"}, "mine")):
        assert identify_from_query(parse(options), query, 3).identity.writer == writer


def test_offsets_of_named_sources() -> None:
    """Format 2 of the offset log, which Spark 4.2 writes for queries with named sources."""
    lines = ['{"t": {"0": 3}}', "-"]
    plain, named = lines, [f"{name}:{line}" for name, line in zip("ab", lines, strict=True)]
    found = [
        source_offsets("\n".join([version, "{}", *texts]).encode())
        for version, texts in (("v1", plain), ("v2", named))
    ]
    assert found == [('{"t": {"0": 3}}', None)] * 2


def test_a_checkpoint_in_the_directory_of_the_sessions_conf(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name / "offsets").mkdir(parents=True)
        (tmp_path / name / "offsets" / "3").write_text(f"v1\n{{}}\n{name}")
        (tmp_path / name / "metadata").write_text(json.dumps({"id": f"id of {name}"}))
    found = identify_from_checkpoint(
        parse({"path": "/log"}), 3, below=f"file:{tmp_path}", query_id="id of b"
    )
    assert found.identity.writer == "id of b"
    assert found.offsets.endswith(b"\nb")
    with pytest.raises(InvalidRequestError, match="checkpoint is unknown"):
        identify_from_checkpoint(
            parse({"path": "/log"}), 3, below=str(tmp_path), query_id="another"
        )


def test_planned_offsets_are_durable_before_a_commit_names_them() -> None:
    """After a power cut the checkpoint must not lack a micro-batch that the log has."""
    fs = CrashFS()
    for directory in ("/c", "/c/offsets"):
        fs.mkdir(directory)
    for name, content in (("metadata", b'{"id":"query"}'), ("offsets/3", offsets(1))):
        with fs.open(f"/c/{name}", create=True) as file:
            file.pwrite(content, 0)
    for directory in ("/", "/c"):
        fs.sync_dir(directory)
    identify_from_checkpoint(parse({"path": "/log", "checkpointLocation": "/c"}), 3, fs)
    after = fs.crash_clone(mode="strict")
    assert read_bytes(after, "/c/offsets/3") == offsets(1)
