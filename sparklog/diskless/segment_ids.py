"""Segment ids in a bucket: they encode the term of the service and how often data were rewritten.

Ids of segments that were imported from remote segments or a fork encode neither; such segments
count as finished.
"""

import os
from enum import IntEnum
from typing import Final

from sparklog.diskless.names import term_of
from sparklog.format.checkpoint_files import topic_id_bytes, topic_id_text

_TERM_BYTES: Final = 6
_RANDOM_BYTES: Final = 9


class Level(IntEnum):
    """Source of a segment's data. Merges rewrite records twice at most."""

    PIECES = 0
    SEGMENTS = 1
    CLEANED = 2


def segment_id(term: int, level: Level) -> str:
    """Return a new id."""
    raw = term.to_bytes(_TERM_BYTES, "big") + bytes([level]) + os.urandom(_RANDOM_BYTES)
    return topic_id_text(raw)


def level_of(segment_id: str, *, term: int) -> Level:
    """Return the source of a segment's data. `term`: the log's, which is the highest valid term."""
    level = topic_id_bytes(segment_id)[_TERM_BYTES]
    if term_of(segment_id) > term or level > max(Level):
        return Level.SEGMENTS
    return Level(level)
