"""All options of the sink, `df.write` and `df.writeStream`: names, defaults and meaning.

Options of Spark's Kafka sink have its names, framing options have the Kafka producer's names, and
all others are Kafka's topic configs, which apply to topics that the sink creates.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sparklog.config import KEYS, LOG_KEYS, NEW_TOPICS, LogOptions, TopicConfig
from sparklog.configdef import (
    SPARKS_OWN,
    Key,
    SparkOptions,
    json_text,
    keys_of,
    option,
    parse_json_object,
    read,
)
from sparklog.errors import InvalidRequestError
from sparklog.format.compression import Codec, check_level
from sparklog.format.names import check_topic
from sparklog.opening import resolved
from sparklog.storage.staging import BATCH_SIZE, Framing
from sparklog.text_checks import check_text
from sparklog.tiered.reading.options import REMOTE_KEYS, RemoteOptions

_CODECS: Final = ("none", "uncompressed", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The checked options. `topic_config` is for created topics, `log` for the log.

    `given`: names of the options that describe a topic and were set explicitly.
    """

    path: str | None = option(
        "path",
        None,
        kind=str,
        required=True,
        doc="The log dir, several log dirs separated by commas, or the URL of a log in a bucket.",
    )
    topic: str | None = option(
        "topic", None, kind=str, doc="Topic of all rows; overrides a column topic."
    )
    include_headers: bool = option("includeHeaders", True, doc="false ignores a column headers.")
    partitions: int = option(
        "partitions", 1, low=1, doc="Number of partitions of created topics (num.partitions)."
    )
    auto_create: bool = option(
        "auto.create.topics.enable", True, doc="Whether a topic is created at its first row."
    )
    name: str = option(
        "name",
        "",
        doc="Distinguishes several sinks of a query; part of the writer's identity. With another "
        "name, the rows of a query whose checkpoint was deleted are appended again.",
    )
    writer_id: str | None = option(
        "writerId",
        None,
        kind=str,
        doc="Name of the writer, instead of the query's id; required on Spark Connect. It stays "
        "the same when the checkpoint is deleted, and turns off the check for rows that the same "
        "query wrote under another id.",
    )
    checkpoint: str | None = option(
        "checkpointLocation",
        None,
        kind=str,
        doc="The query's checkpoint, if sparklog can't find it (Spark Connect). The session's conf "
        "for all checkpoints is used too.",
    )
    batch_size: int = option(
        "batch.size", BATCH_SIZE, low=1, doc="Target size of a record batch in uncompressed bytes."
    )
    compression_type: str = option(
        "compression.type",
        "none",
        choices=_CODECS,
        doc="Codec. A topic's compression.type takes precedence unless it is producer.",
    )
    compression_level: int | None = option(
        "compression.level",
        None,
        kind=int,
        low=-131072,
        high=22,
        doc="Compression level for the codec of compression.type.",
    )
    gzip_level: int | None = option(
        "compression.gzip.level", None, kind=int, low=1, high=9, extra=-1,
        doc="Compression level for gzip.",
    )
    lz4_level: int | None = option(
        "compression.lz4.level", None, kind=int, low=1, high=17,
        doc="Compression level for lz4.",
    )
    zstd_level: int | None = option(
        "compression.zstd.level", None, kind=int, low=-131072, high=22,
        doc="Compression level for zstd.",
    )
    storage_options: str | None = option(
        "storageOptions",
        None,
        kind=str,
        also=["storage_options"],
        secret=True,
        doc="fsspec's options for a store, such as endpoint_url: JSON, or a dict. Pass credentials "
        "by the environment of driver and executors instead.",
    )
    jvm: bool | None = option(
        "jvm",
        None,
        kind=bool,
        doc="Frame, compress and stage records in Spark's JVM, if sparklog's jar is loaded; false: "
        "in Python. Records go to the same partitions. Default: the session's conf "
        "spark.datasource.sparklog.jvm, else true.",
    )
    topic_config: TopicConfig = field(default_factory=TopicConfig)
    given: frozenset[str] = frozenset()
    log: LogOptions = field(default_factory=LogOptions)
    remote: RemoteOptions = field(default_factory=RemoteOptions)

    @property
    def storage(self) -> dict[str, Any]:
        return parse_json_object(self.storage_options or "{}", name="storageOptions")

    @property
    def framing(self) -> Framing:
        """How rows are grouped into record batches and compressed."""
        codec = Codec.parse(self.compression_type)
        own = {Codec.GZIP: self.gzip_level, Codec.LZ4: self.lz4_level, Codec.ZSTD: self.zstd_level}
        level = own.get(codec)
        level = self.compression_level if level is None else level
        check_level(codec, level)
        return Framing(batch_size=self.batch_size, codec=codec, level=level)


OPTIONS: Final[dict[str, Key]] = keys_of(SinkOptions)
"""Option -> description, in the order of the docs; topic configs are accepted too."""

_STORAGE: Final = frozenset({"storageOptions", "storage_options"})
_PRODUCER: Final = "there is no producer; the Kafka names without `kafka.` work where they mean "
_ONCE: Final = "each micro-batch is committed exactly once; leave it out"
_NO_SCHEMA: Final = "a record's value is bytes, without a schema; leave it out"
REFUSED: Final[dict[str, str]] = {
    "kafka.bootstrap.servers": "sparklog writes a log directory; use option path instead",
    "kafka.partitioner.class": "rows go by column partition, else by murmur2 of their key",
    "kafka.acks": "every commit is fsynced (flush=commit); leave it out",
    "kafka.enable.idempotence": _ONCE,
    "kafka.transactional.id": _ONCE,
    "kafka.linger.ms": "a micro-batch is committed as a whole; leave it out",
    "kafka.retries": "there is no broker to retry; leave it out",
    "kafka.max.request.size": "use max.message.bytes",
    "kafka.batch.size": "use batch.size",
    "kafka.compression.type": "use compression.type",
    "kafka.key.serializer": "key is string or binary; cast it in the query",
    "kafka.value.serializer": "value is string or binary; cast it in the query",
    "stateOperator": "a checkpoint's state is written by its query alone; it can be read",
    "txnAppId": _ONCE,
    "txnVersion": _ONCE,
    "mergeSchema": _NO_SCHEMA,
    "overwriteSchema": _NO_SCHEMA,
}
"""Options of the Kafka sink and of Delta without a meaning here, and what to do instead."""

_SPARK: Final = SparkOptions(
    keys=KEYS | LOG_KEYS | REMOTE_KEYS | OPTIONS,
    synonyms=["storage_options", *(synonym for key in KEYS.values() for synonym, _ in key.also)],
    refused=REFUSED,
    ignored=SPARKS_OWN | {"__partition_columns"},
    keywords=True,
    unknown=f"unknown option {{name}}; the sink knows {', '.join(OPTIONS)}, and Kafka's topic "
    "configs",
    kafka=f"option {{name}} has no meaning for sparklog: {_PRODUCER}something here",
)


def parse(values: Mapping[str, Any]) -> SinkOptions:
    """Parse and check options. Names are case-insensitive; `batch_size` also means batch.size.

    Raises:
        InvalidRequestError: An option is unknown, invalid, or has no meaning for sparklog.
    """
    given = _SPARK.given(values)
    for name in _STORAGE & given.keys():
        given[name] = json_text(given[name], name=name)
    remote, given = RemoteOptions.parse(given)
    fields, rest = read(OPTIONS.values(), given)
    log = {key: rest.pop(key) for key in LOG_KEYS if key in rest}
    topic_keys = {
        key.name for key in KEYS.values() if {key.name, *(s for s, _ in key.also)} & {*rest}
    }
    options = SinkOptions(
        **fields,
        topic_config=TopicConfig.parse(rest, base=NEW_TOPICS),
        given=frozenset(topic_keys | {"partitions", "compression.type"} & given.keys()),
        log=LogOptions.parse(log),
        remote=remote,
    )
    if not options.path:
        raise InvalidRequestError("option path is missing: set it to the log's directory or URL")
    for name, text in (("name", options.name), ("writerId", options.writer_id)):
        check_text(name, text or "")
    if options.topic is not None:
        check_topic(options.topic)
    return replace(options, path=resolved(options.path))  # tasks have other working directories
