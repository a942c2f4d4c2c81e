"""Describes and changes topic configs, like kafka-configs."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from sparklog.config import KEYS, OWN_KEYS, TopicConfig, is_explicit
from sparklog.configdef import format_value
from sparklog.errors import InvalidRequestError
from sparklog.storage.view import TopicInfo

_SEPARATOR: Final = re.compile(r"\s*[=:]\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A topic config with the value, the source and a description of the valid values.

    Attributes:
        source: DYNAMIC_TOPIC_CONFIG if the config was set on the topic, else DEFAULT_CONFIG.
        default: The value of a config that is not set.
        own: Whether the config exists only in sparklog, and not in Kafka.
    """

    name: str
    value: str
    source: str
    default: str
    valid: str
    doc: str
    own: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def describe_configs(info: TopicInfo, *, everything: bool = False) -> list[ConfigEntry]:
    """Return the configs that were set on a topic, sorted by name.

    Args:
        info: The topic.
        everything: Include configs that have their default value.
    """
    entries = []
    for name, key in sorted(KEYS.items()):
        value = getattr(info.config, key.field)
        is_set = is_explicit(info.config, key)
        if not (is_set or everything) or value is None:
            continue
        entries.append(
            ConfigEntry(
                name=name,
                value=format_value(value),
                source="DYNAMIC_TOPIC_CONFIG" if is_set else "DEFAULT_CONFIG",
                default="" if key.default is None else format_value(key.default),
                valid=key.wanted,
                doc=key.doc,
                own=name in OWN_KEYS,
            )
        )
    return entries


def parse_configs(pairs: Iterable[str]) -> dict[str, str]:
    """Parse "key=value" pairs, without validating the values.

    Raises:
        InvalidRequestError: A text does not have the form key=value, or a key occurs twice.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InvalidRequestError(f"config {pair!r} must have the form key=value")
        if name.strip() in found:
            raise InvalidRequestError(f"config {name.strip()} is passed twice")
        found[name.strip()] = value.strip()
    return found


def parse_config_file(text: str) -> dict[str, str]:
    """Parse a properties file: "key=value" or "key: value" per line, comments with # and !.

    Raises:
        InvalidRequestError: A line has another form.
    """
    lines = (line.strip() for line in text.splitlines())
    pairs = (line for line in lines if line and line[0] not in "#!")
    return parse_configs(_SEPARATOR.sub("=", pair, count=1) for pair in pairs)


def split_configs(text: str) -> list[str]:
    """Split --add-config at commas, except within brackets: k1=v1,k2=[v1,v2].

    Source: ConfigCommand.parseConfigsToBeAdded.
    """
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    parts.append(part)
    return [each.replace("[", "").replace("]", "") for each in parts if each.strip()]


def changed_configs(
    info: TopicInfo, add: Mapping[str, str], delete: Collection[str]
) -> dict[str, object | None]:
    """Return the argument of `Log.alter_topic` that sets and resets configs of a topic.

    Raises:
        InvalidRequestError: A config is unknown, out of range, both added and deleted, or deleted
            although it is not set.
    """
    if both := sorted(set(add) & set(delete)):
        raise InvalidRequestError(f"config {', '.join(both)} is both added and deleted")
    known = info.config.to_dict()
    if missing := sorted(name for name in delete if name not in known):
        raise InvalidRequestError(
            f"config {', '.join(missing)} isn't set on topic {info.name}; the topic's configs are "
            f"{', '.join(sorted(known)) or 'none'}"
        )
    kept = {name: value for name, value in known.items() if name not in delete}
    TopicConfig.parse({**kept, **add})
    return {**add, **dict.fromkeys(delete)}
