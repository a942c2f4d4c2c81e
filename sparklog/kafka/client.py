"""Who sent a request, as the APIs see it."""

from collections.abc import Callable
from typing import Protocol

from sparklog.kafka.sasl import SaslServer


class Client(Protocol):
    """A client's connection. On the loop's thread."""

    host: str
    """The client's address."""

    local_host: str
    """The address of this host that it came by."""

    principal: str
    """As whom it has authenticated: `User:alice`; `User:ANONYMOUS` where nobody has to."""

    sasl: SaslServer | None
    """How it authenticates; None if it needn't."""

    is_closed: bool

    @property
    def sends_files(self) -> bool:
        """Whether an answer may have pieces that are sent from a file. TLS has to encrypt them."""

    on_closed: list[Callable[[], None]]
    """Called once when it has ended, for whatever reason."""

    on_sent: list[Callable[[bool], None]]
    """Called once when the answer to the request at hand was sent, or nobody is there to take it.

    They are told whether its memory may be used again: all of it has gone to the network.
    """

    def authenticated(self, user: str | None) -> None:
        """Note as whom it has authenticated; None: it has failed to."""

    def close(self, why: str) -> None:
        """End it at once; `why` is logged."""

    def close_when_answered(self, why: str, *, reason: str) -> None:
        """End it when what is under way is answered; nothing more is read. `why` is logged."""
