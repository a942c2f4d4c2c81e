"""An object store in memory that fails like real stores, by a seed. No threads, no waiting.

    bucket, clock = Bucket(), ManualClock()
    store = FaultStore(bucket, clock, seed=7, faults=Faults(reset=0.1, lost=0.1))
    store.crash_at(12, after=False)     # SimulatedKill before the 12th effect
    ...
    store = store.reopen()              # the next process, with the same bucket

Retries, checks and parts are handled by the real `ObjectStore`; only requests are simulated, and
pauses advance the clock. Multithreaded code may use it, but then a seed does not reproduce a run.
"""

import copy
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import crc32c

from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError
from sparklog.testing.faults import SimulatedKill
from sparklog.tiered.object_store.backoff import Retry
from sparklog.tiered.object_store.driver import Driver, Upload, expect_size
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.object_store.store import StoredObject

PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Probabilities, from 0 to 1, of faults of a request to a `FaultStore`.

    Attributes:
        reset: The connection breaks; the request had no effect.
        busy: 500, 503, slow down, a timeout; the request had no effect.
        lost: The request was done, but the response is lost.
        late: The response is lost, and the request is done up to `late_ms` later, on whatever is
            stored then. The delayed effect happens at the next request to the bucket, so a test may
            end before.
        late_ms: The longest delay of a late request.
        again: The request was done, the response was lost, and the client sent it again: a create
            then reports that its own object exists.
        conflict: A create is answered as S3 does during another create: 409, without an effect.
        short: The response has fewer bytes than requested.
        stale: Listings don't show a put or a deletion for up to `stale_ms`.
        stale_ms: The longest time for which a listing is stale.
        latency_ms: (min, max) duration of a request; the clock advances.

    Examples:
        >>> from sparklog.testing import Faults, FaultStore
        >>> store = FaultStore(seed=1, faults=Faults(busy=0.2, lost=0.1))
        >>> store.put("greeting", b"hello")  # retried until it succeeds
        >>> store.get("greeting")
        b'hello'
    """

    reset: float = 0
    busy: float = 0
    lost: float = 0
    short: float = 0
    stale: float = 0
    stale_ms: int = 5_000
    late: float = 0
    late_ms: int = 60_000
    again: float = 0
    conflict: float = 0
    latency_ms: tuple[int, int] = (0, 0)


NO_FAULTS: Final = Faults()
SOME_FAULTS: Final = Faults(
    reset=0.05, busy=0.05, lost=0.05, short=0.05, stale=0.2, latency_ms=(0, 50)
)


@dataclass(slots=True)
class Pending:
    """An unfinished upload.

    Attributes:
        name: The name of the object.
        begun_ms: When the upload began, in milliseconds since the epoch.
        parts: {part number: bytes} of the parts sent so far.

    Examples:
        >>> from sparklog.testing import Bucket
        >>> list(Bucket().uploads.values())
        []
    """

    name: str
    begun_ms: int
    parts: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Late:
    """A request that takes effect at a later time.

    Attributes:
        at_ms: When the request takes effect, in milliseconds since the epoch.
        name: The name of the object.
        data: The bytes of the object; None for a deletion.
        create: Whether the request has no effect if the object exists then.

    Examples:
        >>> from sparklog.testing import Bucket
        >>> Bucket().late
        []
    """

    at_ms: int
    name: str
    data: bytes | None  # None: a deletion
    create: bool = False


@dataclass(slots=True)
class Bucket:
    """The state of an object store in memory, which survives a simulated process.

    Stores of several processes share a bucket, and their requests take effect in sequence.

    Attributes:
        objects: {name: (bytes, time of the last change in milliseconds since the epoch)}.
        uploads: {id: unfinished upload}.
        finished: {id: name} of finished uploads.
        unlisted: {name: (bytes and time as listings still show them or None, until when in ms)}.
        next_upload: The id of the next upload.
        late: Requests that will take effect later.
        lock: Held during each request.

    Examples:
        >>> from sparklog.testing import Bucket, FaultStore
        >>> shared = Bucket()
        >>> FaultStore(shared).put("greeting", b"hello")
        >>> FaultStore(shared).get("greeting"), shared.names()
        (b'hello', ['greeting'])
    """

    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    uploads: dict[str, Pending] = field(default_factory=dict)
    finished: dict[str, str] = field(default_factory=dict)  # upload: name, as its ETag tells
    unlisted: dict[str, tuple[tuple[bytes, int] | None, int]] = field(default_factory=dict)
    next_upload: int = 1
    late: list[Late] = field(default_factory=list)  # requests still on their way
    lock: Any = field(default_factory=threading.RLock, repr=False, compare=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Bucket":
        names = [one.name for one in fields(self) if one.name != "lock"]
        return Bucket(**{name: copy.deepcopy(getattr(self, name), memo) for name in names})

    def names(self) -> list[str]:
        """Return the names of the objects that exist, whatever listings show."""
        return sorted(self.objects)


class FaultStore(ObjectStore):
    """An object store in memory that fails as real stores do.

    After a crash point every request raises SimulatedKill.

    Examples:
        >>> from sparklog.testing import FaultStore
        >>> store = FaultStore()
        >>> store.crash_at(2)
        >>> store.put("first", b"1")
        >>> store.put("second", b"2")
        Traceback (most recent call last):
        sparklog.testing.faults.SimulatedKill: ...
        >>> store.reopen().get("second")  # the request took effect before the crash
        b'2'
    """

    def __init__(
        self,
        bucket: Bucket | None = None,
        clock: ManualClock | None = None,
        *,
        seed: int = 0,
        faults: Faults = NO_FAULTS,
        attempts: int = 6,
        part_bytes: int = 1 << 16,
    ) -> None:
        """Create a client of a simulated bucket, as a newly started process would.

        Args:
            bucket: The bucket; by default an empty one.
            clock: The clock, which requests with a latency advance; by default a new clock.
            seed: Selects which requests meet a fault.
            faults: The probabilities of faults.
            attempts: How often a request is sent at most.
            part_bytes: The size in bytes of a part of a large object.
        """
        self.bucket = Bucket() if bucket is None else bucket
        self.clock = ManualClock() if clock is None else clock
        self._arguments: dict[str, Any] = {"attempts": attempts, "part_bytes": part_bytes}
        rng = random.Random(seed)
        self.requests = FaultDriver(self.bucket, self.clock, rng, faults)
        retry = Retry(
            attempts=attempts, sleep=lambda ms: self.clock.advance(round(ms)), draw=rng.random
        )
        super().__init__(self.requests, retry=retry, part_bytes=part_bytes, parallel=1)

    @property
    def effects(self) -> list[str]:
        """The effects so far, as "put <name>", "delete <name>", "part 2 of <name>", ..."""
        return self.requests.effects

    def crash_at(self, number: int, *, after: bool = True) -> None:
        """Die at an effect of the process.

        Args:
            number: The number of the effect, counted from now; 1 is the next effect.
            after: Whether the process dies after the effect instead of before.
        """
        if number < 1:
            raise InvalidRequestError(f"crash_at({number}): want 1 or more")
        self.requests.crash = len(self.requests.effects) + number, after

    def down(self, for_ms: int, after_ms: int = 0) -> None:
        """Refuse all connections for a while.

        Args:
            for_ms: How long, by the clock.
            after_ms: When the outage begins, counted from now.
        """
        begins = self.clock() + after_ms
        self.requests.windows.append((begins, begins + for_ms))

    def refuse(self, refused: bool = True) -> None:
        """Reject the credentials, until `refuse(False)`.

        Args:
            refused: Whether the credentials are rejected from now on.
        """
        self.requests.refused = refused

    def reopen(self, *, seed: int = 0, faults: Faults = NO_FAULTS) -> "FaultStore":
        """Return the same bucket as seen by another process, with the same clock.

        Args:
            seed: As for the constructor.
            faults: As for the constructor.
        """
        return FaultStore(self.bucket, self.clock, seed=seed, faults=faults, **self._arguments)


class FaultDriver:
    """A `Driver` that behaves like S3's."""

    url = "fault://bucket"
    many, looks, delete_max, replaces, skips = True, False, PAGE, True, True

    def __init__(
        self, bucket: Bucket, clock: ManualClock, rng: random.Random, faults: Faults
    ) -> None:
        self.bucket, self.clock, self.rng, self.faults = bucket, clock, rng, faults
        self.sends_once = faults.again == 0
        self.effects: list[str] = []
        self.crash: tuple[int, bool] | None = None
        self.windows: list[tuple[int, int]] = []
        self.refused = self.dead = False

    def put(self, name: str, data: bytes, crc: int) -> None:
        with self._request(f"put {name}"):
            assert crc32c.crc32c(data) == crc
            self._postpone(name, bytes(data))
            self._store(name, bytes(data))

    def create(self, name: str, data: bytes, crc: int) -> bool:
        with self.bucket.lock:
            made = name not in self.bucket.objects
            with self._request(f"create {name}" if made else ""):
                assert crc32c.crc32c(data) == crc
                if self._meets(self.faults.conflict):
                    raise _Answer("ConditionalRequestConflict", 409)
                # Also if the object exists: a late creation is decided when it lands.
                self._postpone(name, bytes(data), create=True)
                if made:
                    self._store(name, bytes(data))
            # As if the client had repeated a request that was carried out: the second attempt finds
            # the object of the first, so a 412 doesn't prove that another process created it.
            if self._meets(self.faults.again):
                raise _Answer("PreconditionFailed", 412)
            return made

    def copies(self, source: Driver) -> bool:
        return isinstance(source, FaultDriver) and source.bucket is self.bucket

    def copy(self, source: "FaultDriver", source_name: str, name: str, size: int) -> int:
        with self._request(f"put {name}"):
            self._store(name, source._find(source_name)[0])
            return 1

    def read(self, name: str, start: int, end: int) -> bytes:
        with self._request():
            data = self._find(name)[0]
            if start and start >= len(data):
                return b""
            wanted = data[start:end]
            if wanted and self.rng.random() < self.faults.short:
                if end > len(data):  # the response announced its length
                    raise ConnectionError("the body broke off")
                return wanted[: self.rng.randrange(len(wanted))]
            return wanted

    def size(self, name: str) -> int:
        with self._request():
            return len(self._find(name)[0])

    def check(self, name: str, size: int, crc: int) -> None:
        expect_size(name, self.size(name), size)
        assert crc32c.crc32c(self.bucket.objects[name][0]) == crc

    def page(
        self, prefix: str, token: str | None, start_after: str = ""
    ) -> tuple[list[StoredObject], str | None]:
        with self._request():
            listed: dict[str, tuple[bytes, int]] = dict(self.bucket.objects)
            for name, (old, until_ms) in list(self.bucket.unlisted.items()):
                if until_ms <= self.clock():
                    del self.bucket.unlisted[name]
                elif old is None:
                    listed.pop(name, None)
                else:
                    listed[name] = old
            after = token or start_after
            names = sorted(n for n in listed if n.startswith(prefix) and n > after)
            page = [StoredObject(n, len(listed[n][0]), listed[n][1]) for n in names[:PAGE]]
            return page, names[PAGE - 1] if len(names) > PAGE else None

    def delete(self, names: Sequence[str]) -> None:
        for name in names:  # S3 deletes them in sequence, too: a crash may strike in between
            with self._request(f"delete {name}"):
                self._postpone(name, None)
                self._store(name, None)

    def begin(self, name: str, size: int) -> Upload:
        with self._request(f"begin {name}"):
            number = f"upload-{self.bucket.next_upload}"
            self.bucket.next_upload += 1
            self.bucket.uploads[number] = Pending(name, self.clock())
            return _FaultUpload(self, number, name)

    def uploads(self, before_ms: int, prefix: str = "") -> list[Upload]:
        with self._request():
            return [
                _FaultUpload(self, number, pending.name)
                for number, pending in self.bucket.uploads.items()
                if pending.begun_ms < before_ms and pending.name.startswith(prefix)
            ]

    def _find(self, name: str) -> tuple[bytes, int]:
        try:
            return self.bucket.objects[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def _store(self, name: str, data: bytes | None) -> None:
        old = self.bucket.objects.get(name)
        if self.rng.random() < self.faults.stale:
            until_ms = self.clock() + self.rng.randint(1, self.faults.stale_ms)
            # setdefault: while listings are stale, they show the oldest state, not the last one.
            self.bucket.unlisted.setdefault(name, (old, until_ms))
        if data is None:
            self.bucket.objects.pop(name, None)
        else:
            self.bucket.objects[name] = data, self.clock()

    def _meets(self, chance: float) -> bool:
        return chance > 0 and self.rng.random() < chance

    def _postpone(self, name: str, data: bytes | None, *, create: bool = False) -> None:
        """Let a request meet the fault `late`, at random.

        The request then times out, and takes effect later (see `_land`).
        """
        if self._meets(self.faults.late):
            at_ms = self.clock() + self.rng.randint(1, self.faults.late_ms)
            self.bucket.late.append(Late(at_ms, name, data, create))
            raise TimeoutError("the answer never came, and the request has no effect yet")

    def _land(self) -> None:
        """Carry out the late requests that are due by now."""
        due = sorted((one for one in self.bucket.late if one.at_ms <= self.clock()), key=_at_ms)
        self.bucket.late = [one for one in self.bucket.late if one.at_ms > self.clock()]
        for one in due:
            # Whether an object exists is decided now, as S3 decides an If-None-Match at the commit.
            if not one.create or one.name not in self.bucket.objects:
                self._store(one.name, one.data)

    def _request(self, effect: str = "") -> "_Request":
        return _Request(self, effect)

    def before(self, effect: str) -> None:
        """Apply faults that strike before a request is carried out."""
        # Held until done(), so that another thread sees all of the effect of a request, or none.
        self.bucket.lock.acquire()
        try:
            if self.dead:
                raise SimulatedKill("a dead process sends nothing")
            self.clock.advance(self.rng.randint(*self.faults.latency_ms))
            self._land()
            if any(begins <= self.clock() < ends for begins, ends in self.windows):
                raise ConnectionRefusedError("the store is down")
            if self.refused:
                raise PermissionError("the store refuses the credentials")
            if self.rng.random() < self.faults.reset:
                raise ConnectionResetError("connection reset by peer")
            if self.rng.random() < self.faults.busy:
                raise self.rng.choice(_BUSY)()
            if effect:
                self._die(len(self.effects) + 1, after=False)
        except BaseException:
            self.bucket.lock.release()
            raise

    def done(self, effect: str, error: type[BaseException] | None) -> None:
        """Apply faults that strike after a request was carried out."""
        try:
            if error is None and effect:
                self.effects.append(effect)
                self._die(len(self.effects), after=True)
            if error is None and self.rng.random() < self.faults.lost:
                raise TimeoutError("the answer never came")
        finally:
            self.bucket.lock.release()

    def _die(self, number: int, *, after: bool) -> None:
        if self.crash == (number, after):
            self.dead = True
            raise SimulatedKill(f"{'after' if after else 'before'} effect {number}")


class _Answer(Exception):
    """An HTTP response of the store, in the form of botocore's ClientError."""

    def __init__(self, code: str, status: int) -> None:
        super().__init__(f"An error occurred ({code}): simulated")
        self.response = {
            "Error": {"Code": code, "Message": "simulated"},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }


def _at_ms(one: Late) -> int:
    return one.at_ms


_BUSY: Final = (
    lambda: _Answer("InternalError", 500),
    lambda: _Answer("ServiceUnavailable", 503),
    lambda: _Answer("SlowDown", 503),
    lambda: TimeoutError("no answer"),
)


class _Request:
    """A request as a context manager: applies faults before and after the request."""

    def __init__(self, driver: FaultDriver, effect: str) -> None:
        self._driver, self._effect = driver, effect

    def __enter__(self) -> None:
        self._driver.before(self._effect)

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._driver.done(self._effect, error)


class _FaultUpload:
    def __init__(self, driver: FaultDriver, number: str, name: str) -> None:
        self._driver, self._number, self._name = driver, number, name

    def _pending(self) -> Pending:
        try:
            return self._driver.bucket.uploads[self._number]
        except KeyError:
            raise OSError(f"no such upload of {self._name}") from None

    def part(self, number: int, at: int, data: bytes, crc: int) -> Any:
        with self._driver._request(f"part {number} of {self._name}"):
            self._pending().parts[number] = bytes(data)
            return number

    def finish(self, receipts: Sequence[Any]) -> None:
        bucket = self._driver.bucket
        with self._driver._request(f"finish {self._name}"):
            if bucket.finished.get(self._number) == self._name:  # the answer was lost before
                return
            parts = self._pending().parts
            assert list(receipts) == sorted(parts)
            self._driver._store(self._name, b"".join(parts[number] for number in receipts))
            bucket.finished[self._number] = self._name
            del bucket.uploads[self._number]

    def abort(self) -> None:
        with self._driver._request(f"abort {self._name}"):
            self._driver.bucket.uploads.pop(self._number, None)


def crash_points(effects: int) -> Iterator[tuple[int, bool]]:
    """Yield every (number, after) for `FaultStore.crash_at` over that many effects."""
    for number in range(1, effects + 1):
        yield number, False
        yield number, True
