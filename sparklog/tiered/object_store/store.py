"""What tiering asks of an object store. `target` has the one for every fsspec URL."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sparklog.errors import DataCorruptionError
from sparklog.fs import Buffer

WHOLE_BYTES_MAX: Final = 64 << 20
"""The largest object that a get without an end returns, unless the caller gives another limit."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as listed: its name below the target, its size in bytes, its last change (ms)."""

    name: str
    size: int
    time_ms: int


class Store(Protocol):
    """Objects below one target URL; a name has no leading slash. Threads may share it.

    An object shows whole or not at all. FileNotFoundError passes through for an object that isn't
    there; all else is StorageUnavailableError with the URL and the operation, once the retries
    are used up. Each call is one request if nothing fails, but where it says otherwise.
    """

    url: str

    @property
    def replaces(self) -> bool:
        """Whether a put over an object replaces it atomically: a get finds the old or the new."""

    @property
    def sends_once(self) -> bool:
        """Whether no client library repeats a request by itself.

        A refused `create` then made no object, and never will.
        """

    def put(self, name: str, data: bytes) -> None:
        """Write a small object, replacing what was there.

        See `replaces` for what a get may find meanwhile.
        """

    def create(self, name: str, data: bytes) -> bool:
        """Write a small object if there is none of that name: one request, never tried again.

        After anything but True get the name and compare what is there with `data`: unless
        `sends_once`, a client may have sent the request twice on its own, so
        that its second try met what the first had made, and what was never answered may take
        effect at any later time. Of those who create one name at a time one gets True at most.

        Returns: True: this request made it. False: the store says that there is one.
        Raises:
            StorageUnavailableError: it may be there or not, and `passing` tells whether the store
                may answer a moment later.
            InvalidRequestError: the store has no way to create an object only if there is none.
        """

    def copy(self, source: "Store", source_name: str, name: str) -> None:
        """Write a copy of an object of `source`, replacing what was there.

        Where both are one service the bytes don't come here: a put (S3: one for each GiB and two
        more if it is larger than that) and two gets, which look at the sizes. Else they stream
        through, as by `get` and `put_stream`.
        Raises: FileNotFoundError: there is no such object in `source`.
        """

    def put_stream(self, name: str, pieces: Iterable[Buffer], size: int) -> None:
        """Write `size` bytes, in parts if they are many; a few parts are in memory at a time.

        Where a part can't be sent again (stores other than S3 and file://) all is sent again,
        which takes `pieces` that aren't an iterator: iter() of them begins anew. What reading
        them raises passes through. Requests: one a part and three more.
        Raises: InvalidRequestError if more or fewer bytes come; the object then doesn't show.
        """

    def get(
        self, name: str, start: int = 0, end: int | None = None, *, limit: int = WHOLE_BYTES_MAX
    ) -> bytes:
        """Return the bytes [start, end) of an object, fewer only where it ends.

        A second request looks at its size if fewer came.
        Args: limit: without `end`, the largest size of the object. No more is fetched. The client
            library notices an answer that was cut off, as HTTP gives its length.
        Raises: DataCorruptionError: the object is larger than `limit`.
        """

    def get_many(
        self, names: Sequence[str], *, limit: int = WHOLE_BYTES_MAX
    ) -> list[bytes | Exception]:
        """Return whole small objects, fetched at the same time, or why one could not be."""

    def size(self, name: str) -> int:
        """Return an object's size in bytes."""

    @property
    def skips(self) -> bool:
        """Whether `list` sends no requests for the objects that `without` leaves out."""

    def list(
        self, prefix: str = "", start_after: str = "", *, without: str = ""
    ) -> list[StoredObject]:
        """Return all objects whose name begins with `prefix`, at any depth, sorted by name.

        Of them those whose names are greater than `start_after`. One request for each 1,000 of
        them, or what the store has as a page; only S3 spares those for what lies before.

        Args: without: a beginning, with its slash, of names that are left out. A store that
            `skips` sends at most two requests more, however many objects have such names.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; one that isn't there is fine."""

    def sweep_uploads(self, before_ms: int, prefix: str = "") -> int:
        """Give up the uploads that began before (ms) and never ended, for their writer was killed.

        Those of objects whose names begin with `prefix`. They don't show but take room, and hold
        what their writer had sent. Returns how many there were.
        """


def is_listed(name: str, prefix: str, start_after: str, without: str) -> bool:
    """Return whether `Store.list` shows an object, given the same arguments."""
    is_left_out = without != "" and name.startswith(without)
    return name.startswith(prefix) and name > start_after and not is_left_out


def too_large(path: str, limit: int) -> DataCorruptionError:
    """Return the error for an object that is larger than what sparklog writes under its name."""
    return DataCorruptionError(
        f"the object has more than {limit} bytes, so sparklog did not write it; restore it from a "
        "copy of the bucket",
        path=path,
    )
