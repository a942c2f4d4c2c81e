"""A topic's configs in the protocol: values, sources, types, and changes of them.

Source: ConfigHelper, ConfigurationControlManager, ServerTopicConfigSynonyms (Kafka 4.1).
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from sparklog.config import KEYS, OWN_KEYS, TopicConfig, is_explicit
from sparklog.configdef import INT_MAX, Key, format_value
from sparklog.errors import InvalidRequestError
from sparklog.kafka.api_errors import ApiError
from sparklog.kafka.messages import ErrorCode

Entry = dict[str, Any]
"""A config in a response, by the protocol's field names."""


class ConfigSource(enum.IntEnum):
    """Source of a value. Source: DescribeConfigsResponse.ConfigSource."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigType(enum.IntEnum):
    """Type of a value. Source: DescribeConfigsResponse.ConfigType."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Operation(enum.IntEnum):
    """Kind of a change. Source: AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """A change of a config; `value` is None for DELETE."""

    name: str
    operation: int
    value: str | None


_TYPES: Final[dict[type, ConfigType]] = {
    bool: ConfigType.BOOLEAN,
    float: ConfigType.DOUBLE,
    tuple: ConfigType.LIST,
    str: ConfigType.STRING,
}
_WITHOUT_BROKER_CONFIG: Final = OWN_KEYS | {
    "remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable",
}  # fmt: skip


def config_type(key: Key) -> ConfigType:
    """Return the type of an option in Kafka's ConfigDef."""
    if key.kind in _TYPES:
        return _TYPES[key.kind]
    return ConfigType.LONG if key.high is not None and key.high > INT_MAX else ConfigType.INT


def topic_entries(config: TopicConfig, *, is_writable: bool) -> list[Entry]:
    """Return all configs of a topic by name, as in DescribeConfigs.

    Values that were set on the topic, or in the log's options when it was created, have the source
    TOPIC, even if they equal Kafka's default.
    """
    entries = []
    for name, key in sorted(KEYS.items()):
        value = getattr(config, key.field)
        if value is None:  # internal.segment.bytes is not set
            continue
        is_set = is_explicit(config, key)
        synonyms = _default_synonyms(key)
        if is_set:
            source = ConfigSource.TOPIC
            synonyms.insert(0, _synonym(name, value, source))
        entries.append(
            {
                "name": name,
                "value": format_value(value),
                "read_only": not is_writable,
                "config_source": ConfigSource.TOPIC if is_set else ConfigSource.DEFAULT,
                "is_sensitive": False,
                "synonyms": synonyms,
                "config_type": config_type(key),
                "documentation": key.doc,
            }
        )
    return entries


def _default_synonyms(key: Key) -> list[Entry]:
    """Return the broker's config of the same meaning, with the default value.

    Options with several units have none, as in Kafka.
    Source: ConfigHelper.configSynonyms.
    """
    if key.name in _WITHOUT_BROKER_CONFIG or key.default is None or len(key.also) > 1:
        return []
    name = key.also[0][0] if key.also else key.name
    return [_synonym(name, key.default, ConfigSource.DEFAULT)]


def _synonym(name: str, value: Any, source: ConfigSource) -> Entry:
    return {"name": name, "value": format_value(value), "source": source}


def checked(values: Mapping[str, str | None], *, base: TopicConfig | None = None) -> TopicConfig:
    """Return the topic config for values that a client sent.

    Broker names are not accepted for topics, as in Kafka.

    Raises:
        ApiError: A name or value is invalid (INVALID_CONFIG).
    """
    if nulls := sorted(name for name, value in values.items() if value is None):
        raise ApiError(
            ErrorCode.invalid_config,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    for name in values:
        _check_name(name)
    try:
        return TopicConfig.parse(values, base=base)
    except InvalidRequestError as error:
        raise ApiError(ErrorCode.invalid_config, str(error)) from None


def _check_name(name: str) -> None:
    if name not in KEYS:
        raise ApiError(
            ErrorCode.invalid_config,
            f"Unknown topic config name: {name}; known are {', '.join(sorted(KEYS))}",
        )


def replacing(config: TopicConfig, values: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the changes after which a topic has exactly `values` (AlterConfigs).

    Raises:
        ApiError: A name or value is invalid (INVALID_CONFIG).
    """
    checked(values)
    # AlterConfigs replaces all configs: None restores the default of a config not in `values`.
    return {**dict.fromkeys(config.to_dict()), **values}


def altering(config: TopicConfig, alterations: Iterable[Alteration]) -> dict[str, str | None]:
    """Return {config: new value, or None for the default} (IncrementalAlterConfigs).

    Raises:
        ApiError: A name or value is invalid (INVALID_CONFIG), or an operation is unknown
            (INVALID_REQUEST).
    """
    known = config.to_dict()
    return {each.name: _altered(each, known.get(each.name)) for each in alterations}


def _altered(alteration: Alteration, known: str | None) -> str | None:
    name, number, value = alteration
    try:
        operation = Operation(number)
    except ValueError:
        raise ApiError(ErrorCode.invalid_request, f"Unknown operations type {number}") from None
    if operation is Operation.DELETE:
        return None  # also for an unknown config, as in Kafka
    if value is None:
        raise ApiError(ErrorCode.invalid_request, f"Null value not supported for : {name}")
    _check_name(name)
    if operation is Operation.SET:
        return value
    key = KEYS[name]
    if key.kind is not tuple:
        raise ApiError(
            ErrorCode.invalid_config,
            f"Can't {operation.name} to key {name} because its type is not LIST.",
        )
    # APPEND and SUBTRACT start from the value in effect, which may be the default.
    held = (format_value(key.default) if known is None else known).split(",")
    given = value.split(",")
    if operation is Operation.APPEND:
        return ",".join(dict.fromkeys([*held, *given]))
    return ",".join(part for part in held if part not in given)
