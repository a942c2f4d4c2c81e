"""Segment ids of this home: the term of the service that made it, and how often it was rewritten.

Ids of other makers (a tier that became a log, a fork) say nothing of that kind: such segments are
taken for finished.
"""

import os
from enum import IntEnum
from typing import Final

from sparklog.diskless.names import term_of
from sparklog.format.checkpoint_files import topic_id_bytes, topic_id_text

_TERM_BYTES: Final = 6
_RANDOM_BYTES: Final = 9


class Level(IntEnum):
    """What a segment was made of. Records are rewritten by merges twice at most."""

    PIECES = 0
    SEGMENTS = 1
    CLEANED = 2


def segment_id(term: int, level: Level) -> str:
    """Return a fresh id."""
    raw = term.to_bytes(_TERM_BYTES, "big") + bytes([level]) + os.urandom(_RANDOM_BYTES)
    return topic_id_text(raw)


def level_of(segment_id: str, *, term: int) -> Level:
    """Return what a segment was made of. `term`: the log's, as no segment's is above it."""
    level = topic_id_bytes(segment_id)[_TERM_BYTES]
    if term_of(segment_id) > term or level > max(Level):
        return Level.SEGMENTS
    return Level(level)
