"""The interface of a client's connection that the handlers of requests use."""

from collections.abc import Callable
from typing import Protocol

from sparklog.kafka.sasl import SaslServer


class Client(Protocol):
    """A client's connection. Used on the event loop's thread."""

    host: str
    """The client's address."""

    local_host: str
    """The address of this host that the client connected to."""

    principal: str
    """The authenticated principal, `User:alice`; `User:ANONYMOUS` without authentication."""

    sasl: SaslServer | None
    """The SASL exchange of the connection, or None if SASL is disabled."""

    is_closed: bool

    @property
    def sends_files(self) -> bool:
        """Whether a response may contain file ranges.

        With TLS every byte is encrypted in this process, so file ranges are not possible.
        """

    on_closed: list[Callable[[], None]]
    """Called once when the connection has ended."""

    on_sent: list[Callable[[bool], None]]
    """Called once when the response to the current request was sent, or the client disconnected.

    The argument is True if the response's memory can be reused because all of it was sent.
    """

    def authenticated(self, user: str | None) -> None:
        """Record the authenticated user, or with None a failed authentication."""

    def close(self, why: str) -> None:
        """Close the connection at once; `why` is logged."""

    def close_when_answered(self, why: str, *, reason: str) -> None:
        """Close the connection once pending responses are sent; `why` is logged."""
