"""Leases: at any time, a single service works on a log, and other services stand by.

In the same way, a single endpoint for Kafka clients coordinates consumer groups.

Committed data never depend on a lease. A home cannot always tell that the holder of a lease died (a
stalled machine, a clock that jumps), so two services may both act as holder. Even then, each change
is decided on the log's state and rejected if the state has moved on; the only damage is wasted
work.
"""

import os
import socket
import threading
import uuid
from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol

from sparklog.errors import SparklogError, StorageUnavailableError


class LeaseLostError(SparklogError):
    """Another service has taken over, or this service must stop and make no more changes."""


class Lease(Protocol):
    """The right to do a log's background work. Each service has an object, on its log handle.

    In a log dir the lease is a lock that the kernel releases if the holder dies. In a bucket the
    lease is a *term*: a number that increases with each new holder. The changes of background work
    contain the term, and are rejected unless the term is current. `check` writes a heartbeat that
    other processes watch.
    """

    @property
    def held(self) -> bool:
        """Whether this process had the lease at the last check. Makes no request."""

    def acquire(self) -> bool:
        """Try to acquire the lease without waiting; return True on success.

        Raises:
            StorageUnavailableError: The store or the disk does not answer.
        """

    def check(self) -> None:
        """Check that this process still has the lease, and renew the lease if needed.

        Called before every step of the work, so it is cheap (a stat and a small read).

        Raises:
            LeaseLostError: This process does not have the lease; the lease is then released.
        """

    def heartbeat(self) -> None:
        """Write a heartbeat, if due. Heartbeats are only for monitoring.

        Called every second, so it is cheap.

        Raises:
            StorageUnavailableError: The store or the disk does not answer.
        """

    def holder(self) -> dict[str, object]:
        """The pid, host and since_ms of the current or last holder; empty if there was none."""

    def describe(self) -> str:
        """A description of the holder, for messages."""

    def release(self) -> None:
        """Release the lease, which another process can then acquire immediately. Idempotent."""


class UpkeepLease(Lease, Protocol):
    """The lease of a service, which other processes can request from the holder.

    A process that wants the lease calls `request` and `acquire` repeatedly, and `withdraw` at the
    end; a request expires if its process dies. A holder that `lends` ends its work (`check`
    raises), releases the lease between two steps, and stands by until no other process requests or
    has it.
    """

    lends: bool | None
    """Whether this process, as the holder, releases the lease on request. None: not declared."""

    def request(self) -> None:
        """Request the lease from the holder. Earlier requests have priority.

        Called about every second until `acquire` succeeds.

        Raises:
            StorageUnavailableError: The store or the disk does not answer.
        """

    def withdraw(self) -> None:
        """Withdraw the request. Idempotent.

        Raises:
            StorageUnavailableError: The store or the disk does not answer.
        """

    def is_requested(self) -> bool:
        """Return True if another process requests the lease. Called every second, so it is cheap.

        Raises:
            StorageUnavailableError: The store or the disk does not answer.
        """


class EndpointLease(Lease, Protocol):
    """A lease with additional data that the holder publishes about itself."""

    def publish(self, more: Mapping[str, object]) -> None:
        """Store data with the lease, where other processes read them with `published`.

        Args:
            more: The data, which must be JSON-serializable. They replace the data of an earlier
                call.

        Raises:
            LeaseLostError: Another process holds the lease.
            StorageUnavailableError: The disk or the store fails.

        Cost:
            A small write.
        """

    def published(self) -> Mapping[str, object] | None:
        """Return the holder's published data, or None without a holder.

        In a bucket, the death of a holder is noticed after about two minutes.
        """


class HomeLease(Lease):
    """The part of a lease that all homes share: the check before each step, and descriptions.

    Args:
        place: The path or URL of the lease, for messages.
        purpose: What the holder is, for messages: "service" or "endpoint".
        said: More fields of the holder's description.
    """

    lends: bool | None = None
    """See `UpkeepLease.lends`. Other processes read it."""

    def __init__(self, place: str, purpose: str, said: Mapping[str, object] | None = None) -> None:
        self.place, self._purpose, self._said = place, purpose, dict(said or {})
        self._token = uuid.uuid4().hex
        self._since_ms = 0
        self._lock = threading.RLock()

    @abstractmethod
    def _is_current(self) -> bool:
        """Return True if this process, the holder at the last check, still has the lease."""

    @abstractmethod
    def _drop(self) -> None:
        """Record that another process has taken over the lease."""

    def is_requested(self) -> bool:
        """Return False: only leases of services can be requested, and these override the method."""
        return False

    def check(self) -> None:
        """Raise LeaseLostError unless this process still has the lease.

        Also raises if the lease `lends` and is requested; the lease then stays until its release.
        """
        with self._lock:
            self._check_held()
            if not self._is_current():
                self._drop()
                raise LeaseLostError(
                    f"{self.place}: {self.describe()} has taken over; standing back"
                )
            if self.lends and self.is_requested():
                raise LeaseLostError(
                    f"{self.place}: another process requests the lease; standing back"
                )

    def _check_held(self) -> None:
        if not self.held:
            raise LeaseLostError(f"{self.place}: this {self._purpose} has no lease")

    def describe(self) -> str:
        """A description of the holder, for messages."""
        try:
            holder = self.holder()
        # `check` calls this while it reports the loss of the lease: an error of the store must not
        # replace the LeaseLostError.
        except StorageUnavailableError:
            holder = {}
        pid, host = holder.get("pid", "?"), holder.get("host", "?")
        return f"the {self._purpose} of process {pid} on host {host}"

    def _own_description(self) -> dict[str, object]:
        """Return the fields that describe this process as the holder."""
        return {
            **self._said,
            **({} if self.lends is None else {"lends": self.lends}),
            "token": self._token,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since_ms": self._since_ms,
        }
