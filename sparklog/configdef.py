"""Option definitions (name, type, default, valid range, synonyms, text) and their parsing.

The counterpart of Kafka's ConfigDef. Options are fields of a dataclass in the module that uses
them, each made by `option`. Names are parsed in two ways:

    read, refuse_unknown   topics, logs, the service, remote storage: exactly Kafka's names
    SparkOptions           `spark.read`, `writeStream` and so on: names in any case; options that
                           Spark adds itself are accepted, options for Spark's Kafka connector are
                           rejected with an alternative
"""

import difflib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final

from sparklog.errors import InvalidRequestError

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
LONG_MIN: Final = -(2**63)
DOUBLE_MAX: Final = sys.float_info.max

_FLOAT: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e-?[0-9]+)?", re.IGNORECASE)

_IN_UNIT: Final = {
    "ms": ", in milliseconds", "seconds": ", in seconds", "minutes": ", in minutes",
    "hours": ", in hours", "bytes": ", in bytes", "timestamp": ", in ms since 1970",
}  # fmt: skip
_ALIKE: Final = 0.8  # difflib's ratio: names that differ in a letter or two

Value = int | float | bool | str | tuple[str, ...] | None


class Mode(StrEnum):
    """The kind of queries that an option of the Spark source is for."""

    BOTH = "both"
    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An option.

    Attributes:
        low: The smallest number.
        high: The largest number.
        choices: The valid names.
        extra: A valid number outside of the range.
        also: (synonym, factor) pairs.
        required: Whether the option must be given, which the caller checks.
        any_case: Whether values are case-insensitive and converted to lower case.
        aliases: (other spelling, value) of choices. The value is stored.
        mode: The kind of queries that accept the option.
    """

    name: str
    field: str
    kind: type
    default: Value
    doc: str
    low: int | float | None = None
    high: int | float | None = None
    choices: tuple[str, ...] = ()
    extra: int | None = None
    also: tuple[tuple[str, int], ...] = ()
    required: bool = False
    any_case: bool = False
    aliases: tuple[tuple[str, str], ...] = ()
    mode: Mode = Mode.BOTH

    @property
    def wanted(self) -> str:
        """A description of the valid values."""
        if self.kind is bool:
            return "true or false"
        if self.choices:
            return ("a list of " if self.kind is tuple else "one of ") + ", ".join(self.choices)
        if self.low is None:
            return "text"
        powers: dict[float, str] = {LONG_MIN: "-2^63", INT_MAX: "2^31-1", LONG_MAX: "2^63-1"}
        powers[DOUBLE_MAX] = "1.8e308"
        low, high = (powers.get(v, str(v)) for v in (self.low or 0, self.high or 0))
        return f"{low}..{high}" + ("" if self.extra is None else f" or {self.extra}")

    def parse(self, text: str, *, name: str | None = None) -> Value:
        """Parse and check a text, as ConfigDef.parseType.

        `name` is the synonym in use; by default the key's own name.

        Raises:
            InvalidRequestError: The text is invalid. The message has the name, the text and the
                valid values.
        """
        value: Value = None
        text = text.strip()
        if self.kind is bool:
            value = {"true": True, "false": False}.get(text.lower())
        # int() alone also accepts "1_000", digits of other scripts, and numbers of any length.
        elif self.kind is int and re.fullmatch(r"[+-]?[0-9]{1,100}", text):
            value = int(text)
        elif self.kind is float and _FLOAT.fullmatch(text):
            value = float(text)
        elif self.kind is tuple:
            value = tuple(part.strip() for part in text.split(",")) if text else ()
        elif self.kind is str:
            value = text.lower() if self.any_case else text
            value = dict(self.aliases).get(value, value)
        if value is None or not self._holds(value):
            own = name or self.name
            wanted = f"{self.wanted}{_in_unit(self, own)}"
            raise InvalidRequestError(f"{own}={text[:500]}: expected {wanted}")
        return value

    def check(self, value: Value) -> None:
        """Raise InvalidRequestError unless `value` has the type and is in the range of this key."""
        if not self._holds(value):
            raise InvalidRequestError(f"{self.name}={format_value(value)}: expected {self.wanted}")

    def _holds(self, value: Value) -> bool:
        if value is None:
            return self.default is None and self.kind is not bool
        if self.kind is float and type(value) is int:
            value = float(value)
        if type(value) is not self.kind:  # not isinstance, because a bool is an int in Python
            return False
        if self.choices:
            names = value if isinstance(value, tuple) else (value,)
            return all(part in self.choices for part in names)
        if self.low is None or not isinstance(value, int | float):
            return True
        assert self.high is not None
        return self.low <= value <= self.high or value == self.extra


def format_value(value: Value) -> str:
    """Format a value as Kafka's files and tools do."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def option(name: str, default: Value, doc: str, **more: Any) -> Any:
    """Define an option. `long` widens an int's upper bound, `also` lists its synonyms.

    `secret`: the value may contain credentials, so the repr of the dataclass omits it.
    """
    kind = more.pop("kind", type(default))
    secret = more.pop("secret", False)
    if kind is int:
        top = LONG_MAX if more.pop("long", False) else INT_MAX
        more = {"low": 0, "high": top} | more
    also = tuple(s if isinstance(s, tuple) else (s, 1) for s in more.pop("also", ()))
    parts = {"name": name, "kind": kind, "default": default, "doc": doc, "also": also, **more}
    return field(default=default, metadata=parts, repr=not secret)


def keys_of(owner: type[Any]) -> dict[str, Key]:
    """Return the options of a dataclass by name, in the order of the fields."""
    made = (Key(field=f.name, **f.metadata) for f in fields(owner) if f.metadata)
    return {key.name: key for key in made}


def markdown(keys: Iterable[Key]) -> str:
    """Return the table of options in docs/options.md; the column of synonyms only if there are any.

    The description is next to the name, because the last columns of a wide table are out of sight.
    """
    keys = list(keys)
    columns = ["key", "", "default", "valid"] + ["also"] * any(key.also for key in keys)
    lines = ["| " + " | ".join(columns) + " |", "|--" * len(columns) + "|"]
    for key in keys:
        unlimited = key.default in (LONG_MAX, DOUBLE_MAX)
        default = "unlimited" if unlimited else format_value(key.default)
        default = "required" if key.required else "-" if key.default is None else default
        cells = [f"`{key.name}`", key.doc, default, key.wanted]
        also = ", ".join(f"`{name}`" for name, _ in key.also)
        lines.append("| " + " | ".join([*cells, also][: len(columns)]) + " |")
    return "\n".join(lines) + "\n"


def read(
    keys: Iterable[Key], values: Mapping[str, object]
) -> tuple[dict[str, Any], dict[str, object]]:
    """Split `values` into the options of `keys`, as {field: value}, and the rest."""
    rest = dict(values)
    fields: dict[str, Any] = {}
    for key in keys:
        if not rest:
            break
        # From the lowest to the highest precedence: all are checked, and the last is used.
        for name, factor in reversed(((key.name, 1), *key.also)):
            if name in rest:
                fields[key.field] = _scaled(key, name, factor, _text(name, rest.pop(name)))
    return fields, rest


def _scaled(key: Key, name: str, factor: int, text: str) -> Value:
    """Parse a key, or a synonym with another unit. Source: KafkaConfig.logRetentionTimeMillis."""
    own = key
    if name != key.name and key.name == "retention.ms":  # 0 is valid for a topic, not a broker
        own = replace(own, low=1, extra=-1)
    if factor == 1:
        return own.parse(text, name=name)
    number = replace(own, low=min(1, own.low or 0), high=INT_MAX).parse(text, name=name)
    assert isinstance(number, int)
    return number if number == own.extra else number * factor


def _text(name: str, value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, bool | int | float | str):
        return format_value(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    raise InvalidRequestError(f"{name}={value!r}: expected text or a number")


def _in_unit(key: Key, name: str) -> str:
    """Return the unit of a number for messages, from the last word of the Kafka or Spark name."""
    words = re.split(r"[._]", re.sub(r"(?=[A-Z])", ".", name).lower())
    return _IN_UNIT.get(words[-1], "") if key.kind is int else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return an unknown name, with a similar known name, if any."""
    written = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), written, n=1, cutoff=_ALIKE)
    return f"{name} (did you mean {written[near[0]]}?)" if near else name


def refuse_unknown(names: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise InvalidRequestError if there are `names`, none of which is an option."""
    if names:
        known = sorted(known)
        suggestions = ", ".join(did_you_mean(name, known) for name in sorted(map(str, names)))
        raise InvalidRequestError(
            f"unknown option {suggestions}; the known options are {', '.join(known)}"
        )


SPARKS_OWN: Final = frozenset({"paths", "queryname"})
"""Options that Spark itself adds to those of a data source, in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """The options of a Spark reader or writer, and the messages for other names.

    Attributes:
        keys: The options by name, in the order of the docs.
        synonyms: Other accepted names.
        refused: {name: what to do instead}.
        ignored: Accepted names in lower case that have no effect.
        keywords: Whether `batch_size` and `includeheaders` mean batch.size and includeHeaders.
        unknown: The message for any other name, with `{name}`.
        kafka: The message for other `kafka.*` names.
    """

    keys: Mapping[str, Key]
    unknown: str
    synonyms: Iterable[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    ignored: frozenset[str] = SPARKS_OWN
    keywords: bool = False
    kafka: str | None = None
    stream_only: str = ": leave it out"
    _known: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        known = {name.lower(): name for name in (*self.synonyms, *self.keys)}
        object.__setattr__(self, "_known", known)

    def canonical(self, name: str) -> str:
        """Return the name of an option in the docs.

        Raises:
            InvalidRequestError: The option is unknown, or has no meaning here.
        """
        lowered = name.lower()
        forms = [lowered]
        if self.keywords:
            forms += [lowered.replace("_", "."), lowered.replace("_", "")]
        for form in forms:
            if form in self._known:
                return self._known[form]
        for refused, why in self.refused.items():
            if refused.lower() == lowered:
                raise InvalidRequestError(f"option {refused} has no meaning for sparklog: {why}")
        is_kafkas = self.kafka is not None and lowered.startswith("kafka.")
        if is_kafkas:
            raise InvalidRequestError(str(self.kafka).format(name=name))
        name = did_you_mean(name, self._known.values())
        raise InvalidRequestError(self.unknown.format(name=name))

    def given(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return the given options by canonical names, without None. Raises as `canonical`."""
        return {
            self.canonical(name): value
            for name, value in values.items()
            if value is not None and name.lower() not in self.ignored
        }

    def check_mode(self, given: Iterable[str], *, streaming: bool) -> None:
        """Raise InvalidRequestError for an option that is for the other kind of query."""
        wrong = Mode.BATCH if streaming else Mode.STREAM
        for name in (key.name for key in self.keys.values() if key.mode is wrong):
            if name in given:
                raise InvalidRequestError(
                    f"option {name} is for batch queries only, because a stream has no end"
                    if streaming
                    else f"option {name} is for streams{self.stream_only}"
                )


def json_text(value: object, *, name: str) -> str:
    """Return a JSON option, given as text or dict, as JSON in a canonical form.

    Raises:
        InvalidRequestError: The value is not JSON. The message does not show the value, because it
            may be secret.
    """
    parsed = parse_json_object(value, name=name) if isinstance(value, str) else value
    try:
        if isinstance(parsed, Mapping):
            return json.dumps(dict(parsed), sort_keys=True)
    except (TypeError, ValueError):
        pass
    # The value is not shown here and below, because it may contain a secret.
    raise InvalidRequestError(f"{name} must be a JSON object, or a dict with JSON values")


def parse_json_object(text: str, *, name: str) -> dict[str, Any]:
    """Parse an option with a JSON object as text.

    Raises:
        InvalidRequestError: The text is not a JSON object.
    """
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidRequestError(f'{name} must be a JSON object, such as {{"anon": true}}')
    return parsed


_UNITS: Final = {
    "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000,
    "h": 3_600_000, "d": 86_400_000, "": 1,
}  # fmt: skip


def parse_duration_ms(text: str, *, name: str) -> int:
    """Parse "15m" as Spark's JavaUtils.timeStringAsMs.

    Raises:
        InvalidRequestError: The text is not a duration.
    """
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise InvalidRequestError(
            f"{name}={text}: expected a number with a unit (us, ms, s, m, min, h or d), such as 15m"
        )
    return int(int(match[1]) * _UNITS[match[2]])
