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
    """A listed object: its name below the target URL, its size in bytes, its last change (ms)."""

    name: str
    size: int
    time_ms: int


class Store(Protocol):
    """Objects below a target URL; names have no leading slash. Thread-safe.

    An object is visible only when complete. A missing object raises FileNotFoundError; all other
    errors are StorageUnavailableError with the URL and the operation, after all retries. Unless
    noted, each call is a single request if it succeeds at once.
    """

    url: str

    @property
    def replaces(self) -> bool:
        """True if a PUT replaces an object atomically: a GET finds the old or the new object."""

    @property
    def sends_once(self) -> bool:
        """True if no client library repeats a request.

        A refused `create` has then created no object, and never will.
        """

    def put(self, name: str, data: bytes) -> None:
        """Write a small object, replacing an existing object.

        See `replaces` for GETs at the same time.
        """

    def create(self, name: str, data: bytes) -> bool:
        """Write a small object if the name is free: a single request, never retried.

        After any result but True, get the object and compare it with `data`: unless `sends_once`, a
        client library may have sent the request twice, so that its second attempt met the result of
        the first, and a request without an answer may take effect at any later time. At most a
        single creator of a name gets True.
        Returns: True: this request created the object. False: the store reports that it exists.
        Raises:
            StorageUnavailableError: the object may exist or not; `passing` is true if the store may
                answer later.
            InvalidRequestError: the store has no operation that creates an object only if the name
                is free.
        """

    def copy(self, source: "Store", source_name: str, name: str) -> None:
        """Copy an object of `source`, replacing an existing object.

        Within a single service the store copies the bytes: a PUT (S3: a PUT per GiB and two more if
        the object is larger than 1 GiB) and two GETs that compare the sizes. Otherwise the bytes
        are streamed, as by `get` and `put_stream`.
        Raises: FileNotFoundError: the object does not exist in `source`.
        """

    def put_stream(self, name: str, pieces: Iterable[Buffer], size: int) -> None:
        """Write `size` bytes, in parts if they are many; a few parts are in memory at a time.

        If parts can't be sent again (stores other than S3 and file://), a retry sends all bytes
        again, which requires that `pieces` can be iterated repeatedly. Errors from reading them are
        raised unchanged. Cost: a request per part and three more.
        Raises: InvalidRequestError: `pieces` have another size; the object does not become visible.
        """

    def get(
        self, name: str, start: int = 0, end: int | None = None, *, limit: int = WHOLE_BYTES_MAX
    ) -> bytes:
        """Return the bytes [start, end) of an object, fewer only at the end of the object.

        If fewer bytes arrive, a second request checks the object's size.
        Args: limit: without `end`, the maximum size of the object. No more is fetched. The client
            library detects an incomplete answer, because HTTP contains its length.
        Raises: DataCorruptionError: the object is larger than `limit`.
        """

    def get_many(
        self, names: Sequence[str], *, limit: int = WHOLE_BYTES_MAX
    ) -> list[bytes | Exception]:
        """Return complete small objects, fetched concurrently, or the error for each that failed.
        """

    def size(self, name: str) -> int:
        """Return an object's size in bytes."""

    @property
    def skips(self) -> bool:
        """True if `list` makes no requests for the objects that `without` excludes."""

    def list(
        self, prefix: str = "", start_after: str = "", *, without: str = ""
    ) -> list[StoredObject]:
        """Return all objects with this prefix, at any depth, sorted by name.

        `start_after`: only names greater than this. Cost: a request per 1,000 objects, or per page
        of the store; only S3 skips names up to `start_after`.
        Args: without: a prefix, with its slash, of names to exclude. A store that `skips` makes at
            most two more requests, however many objects have such names.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; missing objects are ignored."""

    def sweep_uploads(self, before_ms: int, prefix: str = "") -> int:
        """Abort uploads that started before this time (ms) and were never finished.

        Only uploads of objects with this prefix. They are invisible, but take space and contain the
        data sent so far. Returns their number.
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

    Raises: StorageUnavailableError: versions can't be counted. Cost: a request; in a versioned
        bucket a request per 1,000 versions below the prefixes.
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
