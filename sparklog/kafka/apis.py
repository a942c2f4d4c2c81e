"""Which requests are served, in which versions, and by whom.

Every area has a module with `apis(broker)`, which says what it serves.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.kafka.messages import Answer, Request

Response = Mapping[str, Any]
Handler = Callable[[Request], Answer | Awaitable[Answer | None] | None]
"""Answers a request, by the newest version's field names; see `messages.encode`.

It runs on the loop's thread and must not block. None: no answer is sent. When the client goes away,
what it awaits is cancelled.
"""


@dataclass(frozen=True, slots=True)
class Served:
    """An API: the versions that are answered, and by what.

    `advertised_min`: the lowest version that clients are told of, where that is another one.
    """

    versions: tuple[int, int]
    handle: Handler
    advertised_min: int | None = None

    @property
    def advertised(self) -> tuple[int, int]:
        """The versions that clients are told of."""
        low, high = self.versions
        return (low if self.advertised_min is None else self.advertised_min, high)
