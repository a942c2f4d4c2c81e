"""What a terminal is shown of a log's own bytes: letters, and nothing that it would obey.

A key, a header or a group's name may hold what clears a screen, sets a title, fills the clipboard
(OSC 52) or overwrites the line before it. On a terminal such characters become pictures of
themselves (ESC is ␛); a file or a pipe gets every byte as it is, as Kafka's tools write it.
"""

import io
import logging
import sys
from typing import Final, TextIO

_LOST: Final = "\ufffd"
_BIDI: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))  # they turn what follows round
_ONE_LINE: Final = {
    **{code: chr(0x2400 + code) for code in range(32)},
    127: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), _LOST),  # C1: CSI and OSC in one character
    **dict.fromkeys((0x2028, 0x2029, *_BIDI), _LOST),
}
_VISIBLE: Final = {code: to for code, to in _ONE_LINE.items() if code not in (9, 10)}


def visible(text: str) -> str:
    """Return text without control characters but line feeds and tabs; as many letters as before."""
    return text.translate(_VISIBLE)


def one_row(text: str) -> str:
    """Return text that stays in its line: without line feeds, too."""
    return text.translate(_ONE_LINE)


def visible_bytes(raw: bytes | memoryview, stream: TextIO) -> bytes | memoryview:
    """Return what goes to a stream's buffer: as it is, but where the stream is a terminal."""
    if not stream.isatty():
        return raw
    return visible(str(raw, "utf-8", "replace")).encode("utf-8", "replace")


class RowFormatter(logging.Formatter):
    """A message is one line, whatever names it holds: none makes up a line of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback comes behind it as it is."""
        return one_row(super().formatMessage(record))


class TerminalStream(io.TextIOWrapper):
    """A terminal's stream that shows what it is given. `plain`: what obeys, for colours."""

    def __init__(self, plain: TextIO) -> None:
        super().__init__(
            plain.buffer, encoding=plain.encoding, errors=plain.errors, line_buffering=True
        )
        self.plain = plain

    def write(self, text: str, /) -> int:
        """Write it."""
        return super().write(visible(text))


def guard_streams() -> None:
    """Let this process's standard streams be `TerminalStream`s, where they are terminals."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.isatty():
            stream.flush()
            setattr(sys, name, TerminalStream(stream))


def plain_stream(stream: TextIO) -> TextIO:
    """Return a stream that obeys, for who guards what he writes."""
    return stream.plain if isinstance(stream, TerminalStream) else stream
