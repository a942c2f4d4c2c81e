"""Values of options that several commands take."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import IO, Final

import click

from sparklog.log.positions import to_ms

_EXAMPLE: Final = " such as 2013-07-03T14:00Z"
_WANTED: Final = "ms since the epoch or an ISO time"
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_DATE_DIGITS: Final = 8
_TEXT_MAX: Final = 64 << 20


def as_text(context: click.Context, option: click.Parameter, given: str | None) -> str | None:
    """Let text through: a callback of options. Of bytes that are no UTF-8 Python makes surrogates.

    Raises: click.BadParameter for those, which no log can hold.
    """
    try:
        (given or "").encode()
    except UnicodeEncodeError:
        raise click.BadParameter(f"{given!r} is no UTF-8", context, option) from None
    return given


def read_text(file: IO[str], option: str) -> str:
    """Return what an option's file holds, without a byte order mark.

    Raises: click.BadParameter: it is no UTF-8, or larger than any such file.
    """
    try:
        text = file.read(_TEXT_MAX + 1)
    except UnicodeDecodeError:
        raise click.BadParameter("it is no UTF-8", param_hint=f"'{option}'") from None
    if len(text) > _TEXT_MAX:
        raise click.BadParameter(
            f"it holds more than {_TEXT_MAX} characters: is it another file?",
            param_hint=f"'{option}'",
        )
    return text.removeprefix("\ufeff")


def parse_time(text: str | None, option: str) -> int | None:
    """Return a time in ms since the epoch; see `parse_when`. Raises BadParameter."""
    return None if text is None else to_ms(parse_when(text, option))


def parse_when(text: str, option: str, wanted: str = _WANTED) -> datetime:
    """Return a time that is given as Kafka has it, in ms since the epoch, or in ISO form.

    An ISO time without a zone is UTC, as for Kafka's tools; eight digits are a date (20130703).
    Raises: click.BadParameter, which names all that is `wanted`.
    """
    try:
        if text.isascii() and text.isdecimal() and len(text) != _DATE_DIGITS:
            return _EPOCH + timedelta(milliseconds=int(text))
        when = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
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
