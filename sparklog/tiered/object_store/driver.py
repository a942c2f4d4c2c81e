"""A single attempt at each request to an object store. `ObjectStore` retries, counts and checks.

A driver raises the exceptions of its library. `failures` classifies them by their classes, HTTP
statuses and S3's error codes: ConnectionError and TimeoutError may pass and are retried where that
is safe, FileNotFoundError means that there is no such object, FileExistsError that `create` found
an object, PermissionError that the credentials do not suffice. A transfer that arrived short or
changed is a ConnectionError.
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
    """An object that is sent in parts, and becomes visible when it is finished.

    `Driver.begin` returns an upload.

    Examples:
        >>> from sparklog.tiered import Upload
        >>> class DiscardedUpload(Upload):
        ...     def part(self, number, at, data, crc): ...
        ...     def finish(self, receipts): ...
        ...     def abort(self): ...
    """

    def part(self, number: int, at: int, data: bytes, crc: int) -> Any:
        """Send a part of the object.

        Args:
            number: The number of the part, from 1.
            at: The position of its first byte in the object.
            data: Its bytes.
            crc: The CRC-32C of `data`.

        Returns:
            A receipt for `finish`, such as S3's ETag.
        """

    def finish(self, receipts: Sequence[Any]) -> None:
        """Make the object visible.

        The method is called again if the answer was lost, and then succeeds if the first call did.

        Args:
            receipts: The receipts of all parts, in order.
        """

    def abort(self) -> None:
        """Delete the parts that were sent."""


def send_whole(upload: Upload, data: bytes, crc: int) -> None:
    """Send an object as a single part, or abort."""
    try:
        upload.part(1, 0, data, crc)
        upload.finish(())
    except BaseException:
        upload.abort()
        raise


@runtime_checkable
class VersionedDriver(Protocol):
    """A driver of a store with buckets that may retain replaced or deleted objects."""

    def older_versions(self, prefix: str, before_ms: int) -> int:
        """Count the older versions that were written before a time; 0 in an unversioned bucket."""


class Driver(Protocol):
    """Requests to an object store for objects below a URL.

    Object names are relative to the URL and have no leading slash. Threads share a driver, and a
    forked child process may use the driver of its parent. `sparklog.testing.StoreContract` tests an
    implementation.

    Attributes:
        url: The URL as messages show it, without credentials.
        many: Whether the parts of an upload can be sent at the same time, and sent again.
            Otherwise they are sent once, in order.
        looks: Whether `check` has to be called after `put`, because the store's answer does not
            confirm the size and the checksum of the object.
        delete_max: How many names a call of `delete` accepts.
        replaces: Whether a put over an existing object is atomic.
        skips: Whether pages are sorted by name, and `start_after` needs no request for the names
            before it.

    Examples:
        >>> from sparklog.tiered import Driver, ObjectStoreType
        >>> def open_driver(url, storage_options, limits) -> Driver:
        ...     raise ImportError("sketchdb")
        >>> sketch = ObjectStoreType(schemes=("sketch",), open=open_driver, package="sketchdb")
    """

    url: str
    many: bool
    looks: bool
    delete_max: int
    replaces: bool
    skips: bool

    @property
    def sends_once(self) -> bool:
        """Whether the library never repeats a request, so an answer covers all that was sent."""

    def put(self, name: str, data: bytes, crc: int) -> None:
        """Write an object, atomically if the store can.

        Args:
            name: The name of the object.
            data: Its bytes.
            crc: The CRC-32C of `data`.
        """

    def create(self, name: str, data: bytes, crc: int) -> bool:
        """Write an object if its name is free, in a single atomic step.

        Args:
            name: The name of the object.
            data: Its bytes.
            crc: The CRC-32C of `data`.

        Returns:
            True if this call created the object, False if the name is taken.

        Raises:
            FileExistsError: The same as False. HTTP status 412 is understood as well.
            InvalidRequestError: The store has no such operation. Such a store can contain copies of
                segments and backups, but not the home of a log.
        """

    def copies(self, source: "Driver") -> bool:
        """Return whether `copy` accepts objects of another driver.

        Args:
            source: The other driver.
        """

    def copy(self, source: Any, source_name: str, name: str, size: int) -> int:
        """Copy an object of another driver of this kind within the store.

        Args:
            source: The other driver.
            source_name: The name of the object there.
            name: The name of the copy.
            size: The size of the object in bytes.

        Returns:
            The number of requests that were sent.
        """

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of an object, fewer if the object ends before `end`.

        Bytes beyond `end` are not fetched, regardless of the size of the object.

        Args:
            name: The name of the object.
            start: The position of the first byte.
            end: The position after the last byte.
        """

    def size(self, name: str) -> int:
        """Return the size of an object in bytes.

        Args:
            name: The name of the object.
        """

    def check(self, name: str, size: int, crc: int) -> None:
        """Check the size of an object and, if the store has checksums, its CRC-32C.

        Args:
            name: The name of the object.
            size: The expected size in bytes.
            crc: The expected CRC-32C.

        Raises:
            ConnectionError: The object has another size or checksum.
        """

    def page(
        self, prefix: str, token: str | None, start_after: str = ""
    ) -> tuple[list[StoredObject], str | None]:
        """Return some objects, and the token of the next page or None after the last page.

        Args:
            prefix: The beginning of the names to list.
            token: The token of the page; None for the first page.
            start_after: Some or all objects up to this name may be left out.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; names without an object are ignored.

        Args:
            names: The names of the objects.
        """

    def begin(self, name: str, size: int) -> Upload:
        """Begin to send an object in parts.

        Args:
            name: The name of the object.
            size: The size of the object in bytes.
        """

    def uploads(self, before_ms: int, prefix: str = "") -> list[Upload]:
        """Return unfinished uploads that began before a time.

        Args:
            before_ms: The time, in milliseconds since the epoch.
            prefix: Only uploads of objects whose names begin with this text.
        """


def partial_name(name: str) -> str:
    """Return a fresh name for an unfinished object."""
    return f"{name}.{os.getpid()}-{uuid.uuid4().hex[:8]}{PARTIAL}"


def no_create(url: str) -> InvalidRequestError:
    """Return the error of a store that can't create an object only if there is none."""
    protocol = url.partition(":")[0]
    return InvalidRequestError(
        f"{url}: {protocol} can't create an object on the condition that there is none, which a "
        "log in a bucket requires; use s3://, gs://, abfs://, hdfs:// or file://",
        path=url,
    )


def too_old(url: str, library: str, wanted: str) -> InvalidRequestError:
    """Return the error for a library that is too old to create an object only if there is none.

    Such a library would ignore the condition and replace an existing object.
    """
    return InvalidRequestError(
        f"{url}: {library} is too old to create an object on the condition that there is none, "
        f"which a log in a bucket requires; install {wanted}",
        path=url,
    )


def expect_size(name: str, found: int, wanted: int) -> None:
    """Raise ConnectionError if the sizes differ."""
    if found != wanted:
        raise ConnectionError(f"{found} of {wanted} bytes of {name} arrived")


def time_ms(value: Any) -> int:
    """Return the milliseconds since the epoch of a time in fsspec's listings; 0 without a time."""
    if isinstance(value, datetime.datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, int | float):
        return int(value * 1000)
    if isinstance(value, str):  # Google: 2024-01-01T00:00:00.000Z
        return int(datetime.datetime.fromisoformat(value).timestamp() * 1000)
    return 0
