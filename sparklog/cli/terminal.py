"""Makes a log's data safe for terminals by replacing control characters.

Keys, headers and group names may contain sequences that clear the screen, set the title, fill the
clipboard (OSC 52) or overwrite earlier output. On a terminal such characters are shown as symbols
(ESC as ␛). Files and pipes get the original bytes, as from Kafka's tools.
"""

import io
import logging
import sys
from typing import Final, TextIO

_LOST: Final = "\ufffd"
# Reverse the direction of the following text, so that a line can show another order of words.
_BIDI: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ONE_LINE: Final = {
    **{code: chr(0x2400 + code) for code in range(32)},
    127: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), _LOST),  # C1: CSI and OSC as single characters
    **dict.fromkeys((0x2028, 0x2029, *_BIDI), _LOST),
}
_VISIBLE: Final = {code: to for code, to in _ONE_LINE.items() if code not in (9, 10)}


def visible(text: str) -> str:
    """Return text with visible control characters, except line feeds and tabs.

    The length does not change.
    """
    return text.translate(_VISIBLE)


def one_row(text: str) -> str:
    """Return text on a single line: line feeds are replaced as well."""
    return text.translate(_ONE_LINE)


def visible_bytes(raw: bytes | memoryview, stream: TextIO) -> bytes | memoryview:
    """Return `raw`, with control characters replaced if `stream` is a terminal."""
    if not stream.isatty():
        return raw
    return visible(str(raw, "utf-8", "replace")).encode("utf-8", "replace")


class RowFormatter(logging.Formatter):
    """Formats each log message as a single line, so that names cannot forge further lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a log message. A traceback after the line is not changed."""
        return one_row(super().formatMessage(record))


class TerminalStream(io.TextIOWrapper):
    """A terminal stream that replaces control characters.

    Attributes:
        plain: The original stream, which may receive control characters, for example for colours.
    """

    def __init__(self, plain: TextIO) -> None:
        super().__init__(
            plain.buffer, encoding=plain.encoding, errors=plain.errors, line_buffering=True
        )
        self.plain = plain

    def write(self, text: str, /) -> int:
        """Write text with control characters replaced."""
        return super().write(visible(text))


def guard_streams() -> None:
    """Replace standard streams that are terminals with `TerminalStream`s."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.isatty():
            stream.flush()
            setattr(sys, name, TerminalStream(stream))


def plain_stream(stream: TextIO) -> TextIO:
    """Return the original stream, for callers that replace control characters themselves."""
    return stream.plain if isinstance(stream, TerminalStream) else stream
