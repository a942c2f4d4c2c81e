"""What a block prints against what its page shows."""

from __future__ import annotations

import doctest
import re

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_YEAR = r"20[2-9]\d"  # records of the examples are older
# What differs from run to run, and the word that stands for it; ids first, in whose parts times and
# sizes could be seen (`471d`, between hyphens).
_VARYING = (
    (r"\bimport/\S+(?=: batch)", "WRITER"),  # librdkafka's ids, whose base64 has "/" and "+"
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "ID"),
    (r"\b[0-9a-f]{32}\b", "ID"),
    (r"(?<![\w-])(?=\S*[A-Z])(?=\S*[a-z])[\w-]{22}(?![\w-])", "ID"),  # Kafka's, in base64
    (r"\b00\d{13}\.\d+\.[\w+]+\.[0-9a-f]{12}\b", "POINT"),  # of an archive of checkpoints
    (rf"\b{_YEAR}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?)?(Z|[+-]\d\d:?\d\d| UTC)?", "TIME"),
    (r"\b1[6-9]\d{11}\b", "TIME"),  # in ms
    # A quick machine prints no span below a second.
    (r"(?<=\bbehind) \(\d+(\.\d+)? (s|min)\)", ""),
    (r"\bjust now\b", "DURATION ago"),
    (r"\b\d+(\.\d+)? ?(ns|us|ms|s|min|h|d|days?|hours?|minutes?|seconds?)\b", "DURATION"),
    (r"\b\d+(\.\d+)? ?(([KMGT]i?)?B|bytes?)(/s)?\b", "SIZE"),
    (r"\b\d[\d,.]*/s\b", "RATE"),
    (r"\b(crc:|crc is|the header says) \d+", "CRC"),
    (r"[─━]+", "─"),
)


def alike(said: str, printed: str) -> bool:
    """Whether a page's words are what was printed, but for what varies."""
    return doctest.OutputChecker().check_output(_plain(said), _plain(printed), _FLAGS)


def difference(said: str, printed: str) -> str:
    """What to tell where they aren't alike."""
    example = doctest.Example("", _plain(said))
    return doctest.OutputChecker().output_difference(example, _plain(printed), doctest.REPORT_NDIFF)


def _plain(text: str) -> str:
    for pattern, word in _VARYING:
        text = re.sub(pattern, word, text)
    return text
