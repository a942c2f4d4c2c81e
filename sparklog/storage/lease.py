"""The lease: one service at a time works on a log; the others stand by.

So do endpoints for Kafka clients, of which one at a time coordinates consumer groups.

Nothing that was committed depends on it. Where two services believe that they hold it, for a home
can't always tell that a holder has died (a stalled machine, a clock that jumps), each of their
changes is still decided on the log's state and refused where that has moved on; both at work is
only a waste.
"""

from collections.abc import Mapping
from typing import Protocol

from sparklog.errors import SparklogError


class LeaseLostError(SparklogError):
    """Another service has taken over, or this one is to stop; it touches nothing more."""


class Lease(Protocol):
    """The right to do a log's background work; one object a service, for one handle on the log.

    A log dir's is a lock that the kernel gives back when the holder dies. Where no kernel watches,
    a lease is a *term*: a number, new for each process that takes it, which the home's changes
    carry and are refused without; and a sign of life, which `check` renews and the others watch.
    """

    @property
    def held(self) -> bool:
        """Whether it was ours when we last looked. Asks nobody."""

    def acquire(self) -> bool:
        """Try to get it, without waiting; False if somebody else has it, True if it is ours.

        Raises: StorageUnavailableError.
        """

    def check(self) -> None:
        """Look whether it is still ours, and renew it where that is needed.

        Asked before every step of the work, so it is to be cheap (a stat and a small read).
        Raises: LeaseLostError if it isn't ours, or never was; it is then released.
        """

    def heartbeat(self) -> None:
        """Say that the holder is at work, if it is time, for those who look; nothing goes by it.

        Raises: StorageUnavailableError. Cheap: asked every second.
        """

    def holder(self) -> dict[str, object]:
        """Who holds it, or held it last: pid, host, since_ms; nothing if nobody ever did."""

    def describe(self) -> str:
        """The holder in words."""

    def release(self) -> None:
        """Give it back, so that another can have it at once. Idempotent."""


class UpkeepLease(Lease, Protocol):
    """The lease of a service, which others may ask its holder for: to lead for a while.

    Who wants it asks again and again, tries to `acquire` it, and withdraws; it asks for nothing
    any more once it has died. A holder that `lends` ends its work (`check` tells it to), and gives
    it back between two steps; it stands by until nobody asks and nobody holds it.
    """

    lends: bool | None
    """Whether its holder, once it is us, gives it back when asked. None: it doesn't say."""

    def request(self) -> None:
        """Let the holder know that we want it, and go on wanting it; who asked before goes first.

        Called every second or so until `acquire` succeeds. Raises: StorageUnavailableError.
        """

    def withdraw(self) -> None:
        """Ask no more. Idempotent. Raises: StorageUnavailableError."""

    def is_requested(self) -> bool:
        """Tell whether somebody else asks for it. Asked every second, so it is to be cheap.

        Raises: StorageUnavailableError.
        """


class EndpointLease(Lease, Protocol):
    """A lease whose holder tells the others more of itself, and changes what it tells."""

    def publish(self, more: Mapping[str, object]) -> None:
        """Let the others read `more`, which JSON can hold, until we tell something else.

        Raises: LeaseLostError if it isn't ours; StorageUnavailableError. Cost: a small write.
        """

    def published(self) -> Mapping[str, object] | None:
        """Return what the holder tells; None if nobody holds it, as far as can be seen.

        Where no kernel watches, one that died some two minutes ago is seen to be gone.
        """
