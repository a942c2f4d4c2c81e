"""The warning before a service's first deletion: what goes, by which rule, and how to keep it.

Retention counts record time, so that a backfill of old events may be due at once.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from sparklog.log.retention import LOG_START
from sparklog.log.retiring import Key
from sparklog.words import counted

_LOGGER: Final = logging.getLogger("sparklog.service")


class Gone(Protocol):
    """A segment, or its copy, that is due: offsets [base, end)."""

    @property
    def base(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def rule(self) -> str: ...
    @property
    def why(self) -> str: ...


class Announcer:
    """Warns once; of `what` (segments, copies)."""

    def __init__(self, what: str = "segment", plural: str = "segments") -> None:
        self._what, self._plural = what, plural
        self._done = False

    def announce(self, due: Mapping[Key, Sequence[Gone]], *, dry_run: bool) -> None:
        """Warn of what goes for good, a line a partition, if nothing went before.

        What lies below the log start is gone for readers already, and no config keeps it.
        """
        kept = {key: [one for one in gone if one.rule != LOG_START] for key, gone in due.items()}
        if self._done or not any(kept.values()):
            return
        self._done = True
        for key, gone in kept.items():
            if gone:
                first, last = gone[0], gone[-1]
                _LOGGER.warning(
                    "%s-%d: offsets [%d, %d) %s deleted, %s of %d bytes; the first by %s: %s. "
                    "To keep them, set %s=-1 on the topic",
                    *key, first.base, last.end, "would be" if dry_run else "are now",
                    counted(len(gone), self._what, self._plural),
                    sum(one.bytes for one in gone), first.rule, first.why, first.rule,
                )  # fmt: skip
