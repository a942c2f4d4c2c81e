"""Handlers of requests and the versions that they serve.

Each area of the protocol has a module with a function `apis(broker)` that returns its handlers.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sparklog.kafka.messages import Answer, Request

Handler = Callable[[Request], Answer | Awaitable[Answer | None] | None]
"""Handles a request; returns a response by the newest version's field names, see `messages.encode`.

The handler runs on the event loop's thread and must not block. It returns None if no response is
sent. An awaitable is cancelled when the client disconnects.
"""


@dataclass(frozen=True, slots=True)
class Served:
    """An API of Kafka's protocol that the endpoint serves.

    Attributes:
        versions: The lowest and the highest version that the endpoint serves.
        handle: Handles a request.
        advertised_min: The lowest version that the response to ApiVersions lists, if it differs
            from the lowest served version.
    """

    versions: tuple[int, int]
    handle: Handler
    advertised_min: int | None = None

    @property
    def advertised(self) -> tuple[int, int]:
        """The version range that ApiVersions advertises."""
        low, high = self.versions
        return (low if self.advertised_min is None else self.advertised_min, high)
