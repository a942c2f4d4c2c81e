"""`ObjectStore`: implements `Store` over any driver, with retries, counters, checks and messages.

Parts of large objects are sent concurrently.
"""

import contextlib
import errno
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import crc32c

from sparklog.errors import InvalidRequestError, SparklogError, StorageUnavailableError
from sparklog.fs import Buffer
from sparklog.tiered.object_store.backoff import Retry
from sparklog.tiered.object_store.driver import Driver, Upload, VersionedDriver, expect_size
from sparklog.tiered.object_store.failures import (
    Failure,
    failure_of,
    is_transient,
    may_show,
    message_of,
    says_exists,
    without,
)
from sparklog.tiered.object_store.store import (
    WHOLE_BYTES_MAX,
    Store,
    StoredObject,
    too_large,
)

T = TypeVar("T")
PARTS_MAX: Final = 10_000  # S3's bound
PART_BYTES: Final = 8 << 20
PARALLEL: Final = 4
SMALL_PARALLEL: Final = 16  # requests for small objects wait, and need little CPU time
_PAGE: Final = re.compile(rb"\s*<(!doctype\s+html|html)\b", re.I)


@dataclass(slots=True)
class Counts:
    """Counters of a store's requests and bytes. Each attempt and each part counts as a request.

    `puts` counts all writes, including `create` and `copy`, as stores bill them.
    """

    gets: int = 0
    puts: int = 0
    lists: int = 0
    deletes: int = 0
    retries: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _pid: int = field(default_factory=os.getpid, repr=False, compare=False)

    def add(self, kind: str, number: int = 1) -> None:
        """Add `number` to the counter `kind`."""
        if self._pid != os.getpid():  # forked: a thread of the parent may have held the lock
            self._lock, self._pid = threading.Lock(), os.getpid()
        with self._lock:
            setattr(self, kind, getattr(self, kind) + number)

    def as_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        kinds = ("gets", "puts", "lists", "deletes", "retries", "bytes_in", "bytes_out")
        return {kind: getattr(self, kind) for kind in kinds}


class ObjectStore:
    """The `Store` that `open_store` returns. Thread-safe, also after a fork.

    Examples:
        >>> from sparklog.tiered import open_store
        >>> store = open_store(bucket)
        >>> store.put("greeting", b"hello")
        >>> store.get("greeting"), [listed.name for listed in store.list()]
        (b'hello', ['greeting'])
    """

    def __init__(
        self,
        driver: Driver,
        *,
        retry: Retry | None = None,
        part_bytes: int = PART_BYTES,
        parallel: int = PARALLEL,
        secrets: tuple[str, ...] = (),
    ) -> None:
        """Use a driver; makes no request.

        Args:
            driver: Sends the requests.
            retry: The number of attempts, and the pauses between them.
            part_bytes: The size in bytes of a part of `put_stream`.
            parallel: The number of parts that are sent at the same time, so that at most
                `(parallel + 1) * part_bytes` are in memory. With 1, the caller's thread does all
                work.
            secrets: Texts that no message may show.

        Raises:
            InvalidRequestError: `part_bytes` or `parallel` is below 1.
        """
        if part_bytes < 1 or parallel < 1:
            raise InvalidRequestError(
                f"part_bytes={part_bytes}, parallel={parallel}: both must be at least 1"
            )
        self.url = driver.url
        self.counts = Counts()
        self._driver, self._retry, self._secrets = driver, retry or Retry(), secrets
        self._part_bytes = part_bytes
        self._parallel = parallel if driver.many else 1
        self._small_parallel = SMALL_PARALLEL if parallel > 1 else 1

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    @property
    def replaces(self) -> bool:
        """True if a PUT replaces an existing object atomically. Makes no request."""
        return self._driver.replaces

    @property
    def sends_once(self) -> bool:
        """True if no client library sends a request a second time. Sends no request itself."""
        return self._driver.sends_once

    @property
    def skips(self) -> bool:
        """True if `list` makes no requests for names excluded by `without`.

        Makes no request itself.
        """
        return self._driver.skips

    def put(self, name: str, data: bytes) -> None:
        """Write a small object.

        Args:
            name: The name of the object.
            data: Its bytes.
        """
        crc = crc32c.crc32c(data)

        def attempt() -> None:
            self._once("puts", lambda: self._driver.put(name, data, crc), out=len(data))
            if self._driver.looks:
                self._once("gets", lambda: self._driver.check(name, len(data), crc))

        self._retried("write", name, attempt)

    def create(self, name: str, data: bytes) -> bool:
        """Write a small object if there is none, with a single attempt.

        Args:
            name: The name of the object.
            data: Its bytes.

        Returns:
            Whether this call created the object; see `Store.create`.
        """
        crc = crc32c.crc32c(data)
        outside = sys.exception()
        with self._translated("create", name):
            try:
                return self._once(
                    "puts", lambda: self._driver.create(name, data, crc), out=len(data)
                )
            except SparklogError:
                raise
            except Exception as error:
                if says_exists(error, outside):
                    return False
                raise

    def copy(self, source: Store, source_name: str, name: str) -> None:
        """Write a copy of an object of another store, or of this store.

        Args:
            source: The store that contains the object.
            source_name: The name of the object there.
            name: The name of the copy.
        """
        size = source.size(source_name)
        if not isinstance(source, ObjectStore) or not self._driver.copies(source._driver):
            self.put_stream(name, _Copied(source, source_name, size, self._part_bytes), size)
            return
        theirs, url = source._driver, f"{source.url}/{source_name}"

        def attempt() -> None:
            try:
                requests = self._once(
                    "puts", lambda: self._driver.copy(theirs, source_name, name, size)
                )
            except FileNotFoundError as error:
                if failure_of(error) is not Failure.MISSING:
                    raise
                gone = FileNotFoundError(errno.ENOENT, "no such object", url)
                raise _SourceFailed(gone) from None
            self.counts.add("puts", requests - 1)
            found = self._once("gets", lambda: self._driver.size(name))
            expect_size(name, found, size)

        self._retried("copy", name, attempt)

    def size(self, name: str) -> int:
        """Return the size of an object in bytes.

        Args:
            name: The name of the object.
        """
        return self._retried(
            "read", name, lambda: self._once("gets", lambda: self._driver.size(name))
        )

    def put_stream(self, name: str, pieces: Iterable[Buffer], size: int) -> None:
        """Write an object from pieces, in parts if it is large.

        Args:
            name: The name of the object.
            pieces: The bytes of the object.
            size: The size of the object in bytes.

        Raises:
            InvalidRequestError: `pieces` have another size; no object becomes visible.
        """
        if size <= self._part_bytes:
            with self._translated("write", name):  # errors from reading `pieces` are unchanged
                (data,) = _parts(name, pieces, size, max(1, size))
            self.put(name, data)
        elif isinstance(pieces, Iterator):  # can be read only once
            with self._translated("write", name):
                self._upload(name, pieces, size)
        else:
            self._retried("write", name, lambda: self._upload(name, pieces, size))

    def _upload(self, name: str, pieces: Iterable[Buffer], size: int) -> None:
        upload = self._retried(
            "write", name, lambda: self._once("puts", lambda: self._driver.begin(name, size))
        )
        try:
            receipts, crc = self._send(name, upload, pieces, size)
            self._retried(
                "write", name, lambda: self._once("puts", lambda: upload.finish(receipts))
            )
        except BaseException:
            with contextlib.suppress(Exception):  # report the first error
                self._give_up(upload)
            raise
        self._retried(
            "check", name, lambda: self._once("gets", lambda: self._driver.check(name, size, crc))
        )

    def _send(
        self, name: str, upload: Upload, pieces: Iterable[Buffer], size: int
    ) -> tuple[list[Any], int]:
        """Send all parts; return their receipts in order and the CRC of all bytes."""

        def one(number: int, at: int, data: bytes) -> Any:
            part_crc = crc32c.crc32c(data)

            def attempt() -> Any:
                return self._once(
                    "puts", lambda: upload.part(number, at, data, part_crc), out=len(data)
                )

            return self._retried("write", name, attempt) if self._driver.many else attempt()

        # S3 accepts 10,000 parts, so a very large object needs larger parts.
        part_bytes = max(self._part_bytes, -(-size // PARTS_MAX))
        receipts: list[Any] = []
        at = crc = 0
        with _pool(self._parallel) as submit:
            under_way: deque[Future[Any]] = deque()
            for number, part in enumerate(_parts(name, pieces, size, part_bytes), 1):
                # Wait for the oldest part before the next is read, which limits the memory.
                if len(under_way) >= self._parallel:
                    receipts.append(under_way.popleft().result())
                under_way.append(submit(one, number, at, part))
                crc = crc32c.crc32c(part, crc)
                at += len(part)
            receipts.extend(future.result() for future in under_way)
        return receipts, crc

    def get(
        self, name: str, start: int = 0, end: int | None = None, *, limit: int = WHOLE_BYTES_MAX
    ) -> bytes:
        """Return the bytes [start, end) of an object. Makes no request for an empty range.

        Args:
            name: The name of the object.
            start: The position of the first byte.
            end: The position after the last byte; by default the end of the object.
            limit: Without `end`, the maximum size of the object in bytes.
        """
        if end is not None and end <= start:
            return b""
        # A byte more than allowed, to tell an object of exactly the limit from a larger one.
        stop = start + limit + 1 if end is None else end

        def attempt() -> bytes:
            try:
                data = self._once("gets", lambda: self._driver.read(name, start, stop))
            except FileNotFoundError:
                raise
            except Exception as error:
                if failure_of(error) is Failure.RANGE:
                    return b""
                raise
            self.counts.add("bytes_in", len(data))
            if start == 0 and _PAGE.match(data):  # no object of sparklog starts like HTML
                raise ConnectionError(
                    "a web page arrived instead of the object: is there a proxy, or a log-in "
                    "page, in front of the store?"
                )
            if end is not None and len(data) != end - start:  # the object's end, or cut off
                size = self._once("gets", lambda: self._driver.size(name))
                expect_size(name, len(data), max(0, min(end, size) - start))
            return data

        data = self._retried("read", name, attempt)
        if end is None and len(data) > limit:
            raise too_large(f"{self.url}/{name}", limit)
        return data

    def get_many(
        self, names: Sequence[str], *, limit: int = WHOLE_BYTES_MAX
    ) -> list[bytes | Exception]:
        """Return small objects, up to 16 concurrently, or the error for each that failed.

        Args:
            names: The names of the objects.
            limit: The maximum size of an object in bytes.
        """

        def one(name: str) -> bytes | Exception:
            try:
                return self.get(name, limit=limit)
            except Exception as error:  # noqa: BLE001 - the caller's to look at
                return error

        with _pool(min(len(names), self._small_parallel)) as submit:
            return [future.result() for future in [submit(one, name) for name in names]]

    def list(
        self, prefix: str = "", start_after: str = "", *, without: str = ""
    ) -> list[StoredObject]:
        """Return objects sorted by name.

        Args:
            prefix: Only objects whose names begin with this text.
            start_after: Only objects with greater names.
            without: A prefix, with its slash, of names to exclude.
        """
        listed: list[StoredObject] = []
        token, behind = None, f"{without}~"
        while True:

            def attempt(
                token: str | None = token, after: str = start_after
            ) -> tuple[list[StoredObject], str | None]:
                return self._once("lists", lambda: self._driver.page(prefix, token, after))

            page, token = self._retried("list", prefix, attempt)
            listed += [stored for stored in page if stored.name > start_after]
            last = page[-1].name if page and without and token is not None else ""
            if last and last.startswith(without) and last < behind and self._driver.skips:
                # Start a new listing after all names with the prefix `without`: "~" sorts after the
                # characters of sparklog's names.
                token, start_after = None, behind
            elif token is None:
                break
        if without:
            listed = [stored for stored in listed if not stored.name.startswith(without)]
        return sorted(listed, key=lambda stored: stored.name)

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects, by a request per 1,000 if the store can, otherwise per object.

        Args:
            names: The names of the objects; missing objects are ignored.
        """
        most = self._driver.delete_max

        def one(some: Sequence[str]) -> None:
            self._retried(
                "delete", some[0], lambda: self._once("deletes", lambda: self._driver.delete(some))
            )

        batches = [names[at : at + most] for at in range(0, len(names), most)]
        with _pool(min(len(batches), self._small_parallel)) as submit:
            for future in [submit(one, batch) for batch in batches]:
                future.result()

    def sweep_uploads(self, before_ms: int, prefix: str = "") -> int:
        """Abort unfinished uploads; return their number.

        Args:
            before_ms: Only uploads that started before this time, in milliseconds since the epoch.
            prefix: Only uploads of objects whose names begin with this text.
        """
        left = self._retried(
            "list uploads of",
            prefix,
            lambda: self._once("lists", lambda: self._driver.uploads(before_ms, prefix)),
        )
        for upload in left:
            self._give_up(upload)
        return len(left)

    def older_versions(self, prefix: str, before_ms: int) -> int:
        """Count replaced or deleted versions that a bucket with versioning retains.

        Args:
            prefix: Only versions of objects whose names begin with this text.
            before_ms: Only versions that were written before this time, in milliseconds since the
                epoch.

        Returns:
            The number; 0 without versioning, or if the store can't list versions.
        """
        driver = self._driver
        if not isinstance(driver, VersionedDriver):
            return 0
        return self._retried(
            "list versions of",
            prefix,
            lambda: self._once("lists", lambda: driver.older_versions(prefix, before_ms)),
        )

    def _give_up(self, upload: Upload) -> None:
        self._retried("give up an upload of", "", lambda: self._once("deletes", upload.abort))

    def _once(self, kind: str, attempt: Callable[[], T], out: int = 0) -> T:
        self.counts.add(kind)
        if out:
            self.counts.add("bytes_out", out)
        return attempt()

    def _retried(self, verb: str, name: str, attempt: Callable[[], T]) -> T:
        outside = sys.exception()
        with self._translated(verb, name):
            return self._retry.call(
                attempt,
                lambda error: is_transient(error, outside),
                lambda: self.counts.add("retries"),
            )

    @contextlib.contextmanager
    def _translated(self, verb: str, name: str) -> Iterator[None]:
        outside = sys.exception()
        try:
            yield
        except SparklogError:
            raise
        except _SourceFailed as failed:
            raise failed.error from None
        except Exception as error:  # noqa: BLE001 - whatever a library raises, told in our words
            failure = failure_of(error, outside)
            where = f"{self.url}/{name}" if name else self.url
            if failure is Failure.MISSING:
                if verb == "read":
                    raise FileNotFoundError(errno.ENOENT, "no such object", where) from None
                failure = Failure.BUCKET
            words = without(message_of(error), self._secrets)
            raise StorageUnavailableError(
                f"can't {verb} {where}: {words}; {failure.value}",
                path=where,
                passing=failure is Failure.PASSING,
            ) from (error if may_show(error, self._secrets) else None)


@dataclass(frozen=True, slots=True)
class _Copied:
    """An iterable of the bytes of an object in another store; can be iterated repeatedly."""

    source: Store
    name: str
    size: int
    piece_bytes: int

    def __iter__(self) -> Iterator[Buffer]:
        for at in range(0, self.size, self.piece_bytes):
            yield self.source.get(self.name, at, min(at + self.piece_bytes, self.size))


class _SourceFailed(Exception):
    """Carries the error of reading the data to write, which is then raised unchanged."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def _read(pieces: Iterable[Buffer]) -> Iterator[Buffer]:
    try:
        yield from pieces
    except Exception as error:  # noqa: BLE001 - raised again where it leaves the store
        raise _SourceFailed(error) from None


def _parts(name: str, pieces: Iterable[Buffer], size: int, part_bytes: int) -> Iterator[bytes]:
    """Split `pieces` into parts of `part_bytes`. The last part may be shorter.

    There is at least one part, which is empty for an empty object.
    """
    held: list[memoryview] = []
    length = total = 0
    for piece in _read(pieces):
        view = memoryview(piece).cast("B")
        total += len(view)
        if total > size:
            break
        while length + len(view) > part_bytes:
            cut = part_bytes - length
            held.append(view[:cut])
            yield b"".join(held)
            view, held, length = view[cut:], [], 0
        held.append(view)
        length += len(view)
    if total != size:
        raise InvalidRequestError(
            f"{name}: {'more' if total > size else total} bytes were read, but {size} were "
            "announced: the source changed during the copy, and no object was written; repeat the "
            "call"
        )
    yield b"".join(held)


@contextlib.contextmanager
def _pool(threads: int) -> Iterator[Callable[..., Future[Any]]]:
    """Yield a function that runs work in a thread pool of this call, or inline with one thread.

    The pool is not shared, because a forked child must never wait for its parent's threads.
    """
    if threads <= 1:
        yield _inline
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="sparklog-store")
    try:
        yield pool.submit
    finally:
        pool.shutdown(cancel_futures=True)


def _inline(do: Callable[..., Any], *args: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(do(*args))
    return future
