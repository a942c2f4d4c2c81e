"""The warning before a service's first deletion: what goes, by which rule, and how to keep it.

Retention counts record time, so that a backfill of old events may be due at once.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from sparklog.log.retiring import Key

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


def announce(due: Mapping[Key, Sequence[Gone]], *, dry_run: bool, what: str = "segments") -> None:
    """Warn of what goes for good, a line a partition."""
    for key, gone in due.items():
        first, last = gone[0], gone[-1]
        _LOGGER.warning(
            "%s-%d: offsets [%d, %d) %s deleted, %d %s of %d bytes; the first by %s: %s. "
            "To keep them, set %s=-1 on the topic",
            *key, first.base, last.end, "would be" if dry_run else "are now", len(gone), what,
            sum(one.bytes for one in gone), first.rule, first.why,
            first.rule if first.rule != "log.start.offset" else "retention.ms",
        )  # fmt: skip
