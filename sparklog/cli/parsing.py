"""Parsers of option values that several commands share."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import IO, Final

import click

from sparklog.format.compression import Codec
from sparklog.log.positions import to_ms

CODECS: Final = click.Choice([codec.name.lower() for codec in Codec])
_EXAMPLE: Final = " such as 2013-07-03T14:00Z"
_WANTED: Final = "ms since the epoch or an ISO time"
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_DATE_DIGITS: Final = 8
_TEXT_MAX: Final = 64 << 20


def as_text(context: click.Context, option: click.Parameter, given: str | None) -> str | None:
    """Check that an option's value is valid UTF-8. Serves as a callback of click's options.

    Python decodes other arguments with surrogates, which no log can contain.

    Raises:
        click.BadParameter: The value is not UTF-8.
    """
    try:
        (given or "").encode()
    except UnicodeEncodeError:
        raise click.BadParameter(f"{given!r} is not UTF-8", context, option) from None
    return given


def read_text(file: IO[str], option: str) -> str:
    """Return the content of an option's file, without a byte order mark.

    Raises:
        click.BadParameter: The file is not UTF-8, or too large.
    """
    try:
        text = file.read(_TEXT_MAX + 1)
    except UnicodeDecodeError:
        raise click.BadParameter("the file is not UTF-8", param_hint=f"'{option}'") from None
    if len(text) > _TEXT_MAX:
        raise click.BadParameter(
            f"the file has more than {_TEXT_MAX} characters; check that it is the right file",
            param_hint=f"'{option}'",
        )
    return text.removeprefix("\ufeff")


def parse_time(text: str | None, option: str) -> int | None:
    """Return a time in ms since the epoch. `parse_when` describes the accepted forms.

    Raises:
        click.BadParameter: The text has another form.
    """
    return None if text is None else to_ms(parse_when(text, option))


def parse_when(text: str, option: str, wanted: str = _WANTED) -> datetime:
    """Return a time given in ms since the epoch, as in Kafka, or in ISO form.

    An ISO time without a zone is UTC, as in Kafka's tools; eight digits are a date (20130703).

    Args:
        text: The text.
        option: The option, for the error message.
        wanted: The accepted forms, for the error message.

    Raises:
        click.BadParameter: The text has another form.
    """
    try:
        # Eight digits as ms would be a time in the first 28 hours of 1970, so they are a date.
        if text.isascii() and text.isdecimal() and len(text) != _DATE_DIGITS:
            return _EPOCH + timedelta(milliseconds=int(text))
        when = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} must be {wanted}{_EXAMPLE}", param_hint=f"'{option}'"
        ) from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def parse_properties(given: Sequence[str], option: str) -> dict[str, str]:
    r"""Return KEY=VALUE texts as a dict; `\t` and `\n` in a value become tab and line feed.

    Raises click.BadParameter.
    """
    found: dict[str, str] = {}
    for text in given:
        for pair in text.split(",") if _is_list(text) else [text]:
            key, equals, value = pair.partition("=")
            if not equals or not key.strip():
                raise click.BadParameter(
                    f"{pair!r} must have the form key=value",
                    param_hint=f"'{option}'",
                )
            found[key.strip()] = value.replace("\\t", "\t").replace("\\n", "\n")
    return found


def key_values(given: Sequence[str], option: str) -> dict[str, str]:
    """Return KEY=VALUE texts as a dict. Each text contains a single pair.

    Raises:
        click.BadParameter: A text has another form.
    """
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(
                f"{text!r} must have the form key=value",
                param_hint=f"'{option}'",
            )
        found[key.strip()] = value.strip()
    return found


def _is_list(text: str) -> bool:
    """Return True if a text contains several pairs (a=1,b=2), a form that Kafka's tools accept."""
    return text.count("=") > 1 and all("=" in pair for pair in text.split(","))
