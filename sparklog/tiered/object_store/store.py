"""The interface of object stores. `target` opens the store of an fsspec URL."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from sparklog.errors import DataCorruptionError
from sparklog.fs import Buffer
from sparklog.pluralize import pluralize

WHOLE_BYTES_MAX: Final = 64 << 20
"""The largest object that a GET without an end returns, unless the caller sets another limit."""

_CLOCKS_MS: Final = 300_000  # how far the store's clock, which dates versions, may be ahead


@dataclass(frozen=True, slots=True)
class StoredObject:
    """A listed object.

    Attributes:
        name: The name below the URL of the store.
        size: The size in bytes.
        time_ms: The last change, in milliseconds since the epoch.

    Examples:
        >>> from sparklog.tiered import open_store
        >>> store = open_store(bucket)
        >>> store.put("greeting", b"hello")
        >>> [(listed.name, listed.size) for listed in store.list()]
        [('greeting', 5)]
    """

    name: str
    size: int
    time_ms: int


class Store(Protocol):
    """Objects below a URL; names have no leading slash. Thread-safe.

    An object is visible only when complete. A missing object raises FileNotFoundError; all other
    errors are StorageUnavailableError with the URL and the operation, after all retries. Unless
    noted, each call is a single request if it succeeds at once.

    `sparklog.testing.StoreContract` tests an implementation.

    Examples:
        >>> from sparklog.testing import FaultStore
        >>> from sparklog.tiered import Store
        >>> store: Store = FaultStore()
        >>> store.create("lease", b"mine"), store.create("lease", b"yours")
        (True, False)
    """

    url: str

    @property
    def replaces(self) -> bool:
        """Whether a PUT is atomic, so that a GET finds the old or the new object."""

    @property
    def sends_once(self) -> bool:
        """Whether no client library repeats a request.

        A refused `create` has then created no object, and never will.
        """

    def put(self, name: str, data: bytes) -> None:
        """Write a small object, replacing an existing object.

        See `replaces` for GETs at the same time.

        Args:
            name: The name of the object.
            data: Its bytes.
        """

    def create(self, name: str, data: bytes) -> bool:
        """Write a small object if the name is free: a single request, never retried.

        After any result but True, get the object and compare it with `data`: unless `sends_once`, a
        client library may have sent the request twice, so that its second attempt met the result of
        the first, and a request without an answer may take effect at any later time. At most a
        single creator of a name gets True.

        Args:
            name: The name of the object.
            data: Its bytes.

        Returns:
            True if this request created the object, False if the store reports that it exists.

        Raises:
            StorageUnavailableError: The object may exist or not; `passing` is True if the store may
                answer later.
            InvalidRequestError: The store has no operation that creates an object only if the name
                is free.
        """

    def copy(self, source: "Store", source_name: str, name: str) -> None:
        """Copy an object, replacing an existing object.

        Within a single service the store copies the bytes; otherwise they are streamed, as by `get`
        and `put_stream`.

        Args:
            source: The store that contains the object.
            source_name: The name of the object there.
            name: The name of the copy.

        Raises:
            FileNotFoundError: The object does not exist in `source`.

        Cost:
            Within a service a PUT (S3: a PUT per GiB and two more if the object is larger than 1
            GiB) and two GETs that compare the sizes.
        """

    def put_stream(self, name: str, pieces: Iterable[Buffer], size: int) -> None:
        """Write an object from pieces, in parts if the object is large.

        A few parts are in memory at a time.

        If parts can't be sent again (stores other than S3 and file://), a retry sends all bytes
        again, which requires that `pieces` can be iterated repeatedly. Errors from reading them are
        raised unchanged.

        Args:
            name: The name of the object.
            pieces: The bytes of the object.
            size: The size of the object in bytes.

        Raises:
            InvalidRequestError: `pieces` have another size; the object does not become visible.

        Cost:
            A request per part and three more.
        """

    def get(
        self, name: str, start: int = 0, end: int | None = None, *, limit: int = WHOLE_BYTES_MAX
    ) -> bytes:
        """Return the bytes [start, end) of an object, fewer only at the end of the object.

        If fewer bytes arrive, a second request checks the object's size.

        Args:
            name: The name of the object.
            start: The position of the first byte.
            end: The position after the last byte; by default the end of the object.
            limit: Without `end`, the maximum size of the object in bytes. No more is fetched. The
                client library detects an incomplete answer, because HTTP contains its length.

        Raises:
            DataCorruptionError: The object is larger than `limit`.
        """

    def get_many(
        self, names: Sequence[str], *, limit: int = WHOLE_BYTES_MAX
    ) -> list[bytes | Exception]:
        """Return complete small objects, fetched concurrently, or the error for each that failed.

        Args:
            names: The names of the objects.
            limit: The maximum size of an object in bytes.
        """

    def size(self, name: str) -> int:
        """Return the size of an object in bytes.

        Args:
            name: The name of the object.
        """

    @property
    def skips(self) -> bool:
        """Whether `list` makes no requests for the objects that `without` excludes."""

    def list(
        self, prefix: str = "", start_after: str = "", *, without: str = ""
    ) -> list[StoredObject]:
        """Return objects at any depth, sorted by name.

        Args:
            prefix: Only objects whose names begin with this text.
            start_after: Only objects with greater names.
            without: A prefix, with its slash, of names to exclude. A store that `skips` makes at
                most two more requests, however many objects have such names.

        Cost:
            A request per 1,000 objects, or per page of the store; only S3 skips names up to
            `start_after`.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; missing objects are ignored.

        Args:
            names: The names of the objects.
        """

    def sweep_uploads(self, before_ms: int, prefix: str = "") -> int:
        """Abort uploads that were never finished; return their number.

        Such uploads are invisible, but take space and contain the data sent so far.

        Args:
            before_ms: Only uploads that started before this time, in milliseconds since the epoch.
            prefix: Only uploads of objects whose names begin with this text.
        """


def is_listed(name: str, prefix: str, start_after: str, without: str) -> bool:
    """Return True if `Store.list` returns an object, given the same arguments."""
    is_left_out = without != "" and name.startswith(without)
    return name.startswith(prefix) and name > start_after and not is_left_out


def too_large(path: str, limit: int) -> DataCorruptionError:
    """Return the error for an object that is larger than sparklog's objects with such names."""
    return DataCorruptionError(
        f"the object has more than {limit} bytes, so sparklog did not write it; restore it from a "
        "copy of the bucket",
        path=path,
    )


@runtime_checkable
class KeepsVersions(Protocol):
    """A store that can count older object versions; other stores can't."""

    def older_versions(self, prefix: str, before_ms: int) -> int:
        """Count replaced versions, written before a time, of objects with this prefix."""


def versions_left(store: Store, prefixes: Iterable[str], before_ms: int) -> list[str]:
    """Return messages about versions older than `before_ms` that may contain erased records.

    Cost: a request; in a versioned bucket a request per 1,000 versions below the prefixes.

    Raises:
        StorageUnavailableError: Versions can't be counted.
    """
    if not isinstance(store, KeepsVersions):
        return []
    counts = {each: store.older_versions(each, before_ms + _CLOCKS_MS) for each in prefixes}
    return [
        f"{pluralize(count, 'older version')} of objects below {store.url}/{prefix}, which the "
        "bucket retains (versioning) and which may contain such records: delete them, or have a "
        "lifecycle rule (NoncurrentVersionExpiration) do it; run the same erasure again then"
        for prefix, count in counts.items()
        if count
    ]
