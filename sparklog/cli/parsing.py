"""Values of options that several commands take."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import click

_EXAMPLE: Final = " such as 2013-07-03T14:00Z"


def parse_time(text: str | None, option: str) -> int | None:
    """Return an ISO time in ms since the epoch; UTC if it has no zone. Raises BadParameter."""
    return None if text is None else int(parse_when(text, option).timestamp() * 1000)


def parse_when(text: str, option: str, wanted: str = "an ISO time") -> datetime:
    """Return an ISO time; UTC if it has no zone.

    Raises: click.BadParameter, which names all that is `wanted`.
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r}: want {wanted}{_EXAMPLE}", param_hint=f"'{option}'"
        ) from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def parse_properties(given: Sequence[str], option: str) -> dict[str, str]:
    """Return KEY=VALUE texts as a dict; `\\t` and `\\n` in a value are those characters.

    Raises click.BadParameter.
    """
    found: dict[str, str] = {}
    for text in given:
        for pair in text.split(",") if _is_list(text) else [text]:
            key, equals, value = pair.partition("=")
            if not equals or not key.strip():
                raise click.BadParameter(f"{pair!r}: want key=value", param_hint=f"'{option}'")
            found[key.strip()] = value.replace("\\t", "\t").replace("\\n", "\n")
    return found


def key_values(given: Sequence[str], option: str) -> dict[str, str]:
    """Return KEY=VALUE texts, one a text, as a dict. Raises click.BadParameter."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r}: want key=value", param_hint=f"'{option}'")
        found[key.strip()] = value.strip()
    return found


def _is_list(text: str) -> bool:
    """Whether several pairs were given at once, a=1,b=2, as Kafka's tools take them."""
    return text.count("=") > 1 and all("=" in pair for pair in text.split(","))
