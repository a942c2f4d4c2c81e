"""One attempt at each request to a store: what `ObjectStore` retries, counts and checks.

A driver raises what its library raises; `failures` knows what that means. A transfer that arrived
short or changed is a ConnectionError. FileNotFoundError: there is no such object.
"""

import datetime
import os
import uuid
from collections.abc import Sequence
from typing import Any, Final, Protocol, runtime_checkable

from sparklog.errors import InvalidRequestError
from sparklog.tiered.object_store.store import StoredObject

PARTIAL: Final = ".partial"
"""Ends the names of unfinished objects where a store has no uploads of its own; never listed."""


class Upload(Protocol):
    """An object on its way, in parts; it shows when it is finished."""

    def part(self, number: int, at: int, data: bytes, crc: int) -> Any:
        """Send part `number` (from 1), which begins at byte `at`; return its receipt."""

    def finish(self, receipts: Sequence[Any]) -> None:
        """Let it show. Called again after a lost answer it succeeds if the first call did."""

    def abort(self) -> None:
        """Give it up; nothing stays."""


@runtime_checkable
class VersionedDriver(Protocol):
    """A driver of a store whose buckets may keep what was replaced or deleted."""

    def older_versions(self, prefix: str, before_ms: int) -> int:
        """Count such versions that were written before; 0 where the bucket keeps none."""


class Driver(Protocol):
    """Requests below one URL. Threads share it; a forked child may use its parent's.

    Attributes:
        url: as messages show it.
        many: parts can be sent at the same time, and again; else in order, once.
        looks: a put is to be looked at by `check`, for its answer says nothing of what came.
        delete_max: names in one `delete`.
        replaces: a put over an object is atomic.
        skips: pages are sorted by name, and `start_after` costs no request for what lies before.
        sends_once: the library repeats no request by itself, so an answer is about all of them.
    """

    url: str
    many: bool
    looks: bool
    delete_max: int
    replaces: bool
    skips: bool

    @property
    def sends_once(self) -> bool: ...

    def put(self, name: str, data: bytes, crc: int) -> None:
        """Write an object whole; atomically, where the store can."""

    def create(self, name: str, data: bytes, crc: int) -> bool:
        """Write an object whole if there is none; return False, or raise, if there is one.

        See `failures.says_exists` for what may be raised then. InvalidRequestError: no way to.
        """

    def copies(self, source: "Driver") -> bool:
        """Tell whether `copy` can take objects of `source`."""

    def copy(self, source: Any, source_name: str, name: str, size: int) -> int:
        """Copy an object of another driver of this kind, within the store.

        Returns: the number of requests that it took.
        """

    def read(self, name: str, start: int, end: int) -> bytes:
        """Bytes [start, end), fewer where the object ends.

        No more is fetched, whatever the object's size: nothing is read from a store unbounded.
        """

    def size(self, name: str) -> int: ...

    def check(self, name: str, size: int, crc: int) -> None:
        """Raise ConnectionError unless the object has this size and, if the store tells it, CRC."""

    def page(
        self, prefix: str, token: str | None, start_after: str = ""
    ) -> tuple[list[StoredObject], str | None]:
        """Return some objects and the next page's token, None after the last.

        Some or all of those up to `start_after` may be left out.
        """

    def delete(self, names: Sequence[str]) -> None: ...

    def begin(self, name: str, size: int) -> Upload: ...

    def uploads(self, before_ms: int, prefix: str = "") -> list[Upload]:
        """Return uploads below `prefix` that began before (ms) and never ended."""


def partial_name(name: str) -> str:
    """Return a fresh name for an unfinished object."""
    return f"{name}.{os.getpid()}-{uuid.uuid4().hex[:8]}{PARTIAL}"


def no_create(url: str) -> InvalidRequestError:
    """Return the error of a store that can't create an object only if there is none."""
    protocol = url.partition(":")[0]
    return InvalidRequestError(
        f"{url}: {protocol} has no way to create an object only if there is none, which a log's "
        "home needs; use s3://, gs://, abfs://, hdfs:// or file://",
        path=url,
    )


def too_old(url: str, library: str, wanted: str) -> InvalidRequestError:
    """Return the error of a library that would forget the condition and replace the object."""
    return InvalidRequestError(
        f"{url}: {library} is too old to create an object only if there is none, which a log's "
        f"home needs; install {wanted}",
        path=url,
    )


def expect_size(name: str, found: int, wanted: int) -> None:
    """Raise ConnectionError if the sizes differ."""
    if found != wanted:
        raise ConnectionError(f"{found} of {wanted} bytes of {name} arrived")


def time_ms(value: Any) -> int:
    """Milliseconds since the epoch of a time as fsspec's listings have it; 0 if they have none."""
    if isinstance(value, datetime.datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, int | float):
        return int(value * 1000)
    if isinstance(value, str):  # Google: 2024-01-01T00:00:00.000Z
        return int(datetime.datetime.fromisoformat(value).timestamp() * 1000)
    return 0
