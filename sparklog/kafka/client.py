"""Who sent a request, as the APIs see it."""

from collections.abc import Callable
from typing import Protocol


class Client(Protocol):
    """A client's connection. On the loop's thread."""

    host: str
    """The client's address."""

    principal: str
    """As whom it has authenticated: `User:alice`; `User:ANONYMOUS` where nobody has to."""

    is_closed: bool

    on_closed: list[Callable[[], None]]
    """Called once when it has ended, for whatever reason."""

    def close(self, why: str) -> None:
        """End it at once; `why` is logged."""
