"""`Cursor`: where a look goes on, in each partition; short enough for a URL."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from sparklog.errors import InvalidRequestError
from sparklog.format.batch import OFFSET_MAX

LENGTH_MAX: Final = 24_000
"""Characters; a longer one has no place in a URL."""
_FORM: Final = re.compile(r"(\d{1,10})((?:_\d{1,10}-\d{1,19})*)")
_PART: Final = re.compile(r"_(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Cursor:
    """`at`: {partition: the next offset to read, or, newest first, the offset behind it}.

    Partitions that aren't named begin where the look does. `turn`: whose turn it is.
    """

    turn: int = 0
    at: Mapping[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.turn) + "".join(f"_{p}-{offset}" for p, offset in self.at.items())

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read what `str` gave; None of "". Raises: InvalidRequestError."""
        if not text:
            return None
        found = _FORM.fullmatch(text) if len(text) <= LENGTH_MAX else None
        if found is None:
            raise InvalidRequestError("cursor: this isn't one: begin at the first page again")
        at = {int(p): min(int(offset), OFFSET_MAX) for p, offset in _PART.findall(found[2])}
        return cls(int(found[1]), at)
