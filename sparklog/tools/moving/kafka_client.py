"""Clients, configuration and errors that the import from and export to a live Kafka share.

librdkafka (confluent-kafka) is imported only when it is needed: `pip install sparklog[kafka]`.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sparklog.errors import (
    InvalidRequestError,
    SparklogError,
    StorageUnavailableError,
    UnknownTopicError,
)
from sparklog.extras import needed

TIMEOUT_S: Final = 30.0
"""Seconds to wait for a broker's answer."""

_FATAL: Final = ("_INVALID_ARG", "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED",
                 "SASL_AUTHENTICATION_FAILED", "_AUTHENTICATION", "TOPIC_EXCEPTION",
                 "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
                 "INVALID_PARTITIONS", "POLICY_VIOLATION", "MSG_SIZE_TOO_LARGE")  # fmt: skip


def library() -> Any:
    """Return the module confluent_kafka.

    Raises:
        InvalidRequestError: The package is not installed.
    """
    with needed(InvalidRequestError):
        import confluent_kafka
        import confluent_kafka.admin
    return confluent_kafka


def read_config(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the settings in a client's properties file, under librdkafka's names.

    Lines have the form key=value; # and ! begin comments.

    Raises:
        InvalidRequestError: The file can't be read, or a line has another form.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidRequestError(f"{os.fspath(path)}: {why}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        key, equals, value = line.partition("=")
        if not equals:
            raise InvalidRequestError(
                f"{os.fspath(path)}, line {number} must have the form key=value"
            )
        found[key.strip()] = value.strip()
    return found


def client(make: Any, bootstrap_servers: str, config: Mapping[str, object]) -> Any:
    """Create a client.

    Raises:
        InvalidRequestError: librdkafka doesn't know a setting.
    """
    whole = {"log_level": 2, **config, "bootstrap.servers": bootstrap_servers}
    try:
        return make(whole)
    except (library().KafkaException, TypeError, ValueError) as error:
        raise InvalidRequestError(f"Kafka client: {text_of(error)}") from None


def text_of(error: BaseException) -> str:
    """Return the text of a Kafka error."""
    inner = error.args[0] if error.args else error
    return str(inner.str()) if hasattr(inner, "str") else str(inner)


@contextlib.contextmanager
def errors(what: str) -> Iterator[None]:
    """Translate librdkafka's errors in this block. `what` names the failed action and the topic."""
    kafka = library()
    try:
        yield
    except kafka.KafkaException as error:
        raise translated(error.args[0], what) from error
    except TimeoutError as error:  # of the admin client's futures
        raise translated("no answer in time", what) from error


def translated(error: Any, what: str) -> SparklogError:
    """Return sparklog's error for a KafkaError."""
    name = error.name() if hasattr(error, "name") else ""
    text = f"{what}: {error.str() if hasattr(error, 'str') else error}"
    if name in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"):
        return UnknownTopicError(text)
    if name in _FATAL:
        return InvalidRequestError(text)
    return StorageUnavailableError(f"{text}; do it again to continue")


def metadata(asked: Any, topic: str, where: str) -> tuple[str, list[int]]:
    """Return (cluster id, partitions) of a topic.

    Raises:
        UnknownTopicError: The topic does not exist.
    """
    with errors(f"topic {topic} at {where}"):
        found = asked.list_topics(topic, timeout=TIMEOUT_S)
    about = found.topics[topic]
    if about.error is not None:
        raise translated(about.error, f"topic {topic} at {where}")
    return str(found.cluster_id), sorted(about.partitions)


def import_writer(admin: Any, cluster: str, kafka_topic: str, topic: str, what: str) -> str:
    """Return the name of the writer under which an import commits records of a Kafka topic.

    The name contains the id of the Kafka topic, because a topic can be deleted and created again
    under the same name. It contains the log's topic if that has another name, because a Kafka topic
    can be imported into several topics. `what` is the action and the place, for error messages.
    """
    with errors(what):
        asked = admin.describe_topics(library().TopicCollection([kafka_topic]))
        about = asked[kafka_topic].result(TIMEOUT_S)
    topic_id = getattr(about, "topic_id", None)
    name = f"import/{cluster}/{kafka_topic}/{topic_id if topic_id is not None else '-'}"
    return name if topic == kafka_topic else f"{name}/{topic}"
