"""An unreliable object store for processes that take turns: each request is a step.

    bucket = ScheduledBucket(schedule)
    store = bucket.store(process)       # a `Store`; its requests are steps of `process`

A write may be lost, done without a response, done late (up to the very end), done twice, or done
again much later; the writer only gets a StorageUnavailableError. A `StoreFlaw` takes away a
guarantee that a log in a bucket relies on, so that tests can show that the guarantee is needed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.fs import Buffer
from sparklog.testing.schedules import Process, Schedule
from sparklog.tiered.object_store.store import WHOLE_BYTES_MAX, Store, StoredObject, is_listed


class StoreFlaw(Enum):
    """A behavior that a store must not have."""

    PUTS = "a create replaces what is there"
    LOOKS_FIRST = "a create looks when it is sent, and puts later"
    HALF = "a created object shows before it is whole"
    STALE_GET = "a get may miss what was created"


class Effect(NamedTuple):
    """The effect of a write on the object `name`.

    Attributes:
        verb: "create", "put" or "delete".
        before: The bytes of the object before the write, or None without an object.
        after: The bytes of the object after the write, or None without an object.
    """

    verb: str
    name: str
    before: bytes | None
    after: bytes | None


class Write(NamedTuple):
    """A create, put or delete that a process has sent.

    Attributes:
        was_there: Whether the object existed when the write was sent.
    """

    verb: str
    name: str
    data: bytes
    was_there: bool = False


FAULTS: Final = ("lost", "unseen", "late", "twice", "echo")
NO_ANSWER: Final = "no answer came"
STALE_STEPS: Final = 30
HALF_STEPS: Final = (2, 30)


@dataclass(slots=True)
class ScheduledBucket:
    """A bucket that processes of a schedule share.

    Attributes:
        objects: {name: (bytes, time in ms)}.
        pending: The writes that were sent and take effect at a later step.
        watch: Functions that are called after each effect, and raise an error after a forbidden
            effect.
        trace: The last requests, as (step, process, request, result).
    """

    schedule: Schedule
    flaws: frozenset[StoreFlaw] = frozenset()
    url: str = "scheduled://bucket"
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    pending: list[tuple[int, Write]] = field(default_factory=list)
    watch: list[Callable[[Effect], None]] = field(default_factory=list)
    trace: deque[tuple[int, str, str, str]] = field(default_factory=lambda: deque(maxlen=4000))
    _born: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.schedule.before_step.append(self._land_due)

    def store(self, process: Process) -> "ScheduledStore":
        """Return the bucket for a process, whose requests the schedule can delay or fail."""
        return ScheduledStore(self, process)

    def land(self, share: float = 1) -> None:
        """Apply all pending writes now, or only a random share."""
        due = [each for each in self.pending if self.schedule.chance(share)]
        self.pending = [each for each in self.pending if each not in due]
        # An object store gives no order to requests that are under way at the same time.
        self.schedule.rng.shuffle(due)
        for _, write in due:
            self._apply(write, "after all")

    def send_later(self, steps: int, write: Write) -> None:
        """Schedule a write. Its sender does not wait for a response."""
        self.pending.append((self.schedule.step + steps, write))

    def _land_due(self) -> None:
        if self.pending:
            now = self.schedule.step
            due = [each for each in self.pending if each[0] <= now]
            if due:
                self.pending = [each for each in self.pending if each[0] > now]
                for _, write in due:
                    self._apply(write, "late")

    # --- requests ----------------------------------------------------------------------------

    def read(self, process: str, name: str) -> bytes:
        """Return an object. Raises: FileNotFoundError, StorageUnavailableError."""
        self._read_fault(process, f"get {name}")
        found = self.objects.get(name)
        is_flawed = StoreFlaw.STALE_GET in self.flaws and self._young(name)
        stale = is_flawed and self.schedule.chance(0.3)
        self._note(process, f"get {name}", "not there" if found is None else "")
        if found is None or stale:
            raise FileNotFoundError(name)
        return found[0]

    def listing(self, process: str, prefix: str) -> list[StoredObject]:
        """Return all objects below `prefix`. Raises: StorageUnavailableError."""
        self._read_fault(process, f"list {prefix}")
        self._note(process, f"list {prefix}", "")
        found = sorted(name for name in self.objects if name.startswith(prefix))
        return [StoredObject(n, len(self.objects[n][0]), self.objects[n][1]) for n in found]

    def write(self, process: str, write: Write) -> bool:
        """Apply a write, with the faults of the schedule. Return the response.

        Raises:
            StorageUnavailableError: The process gets no response.
        """
        rates, some = self.schedule.fault_rates, self.schedule.rng
        fault = some.choice(FAULTS) if self.schedule.chance(rates.writes) else ""
        # late: only later; echo: now and once more later, as a retry that a proxy held back.
        if fault in ("late", "echo"):
            at = self.schedule.step + some.choice(rates.late_steps)
            self.pending.append((at, write))
        answer: bool | None = None
        if fault not in ("lost", "late"):
            answer = self._apply(write, process)
        if fault == "twice":  # the client's own retry
            answer = self._apply(write._replace(was_there=True), process)
        if fault:
            self._note(process, f"{write.verb} {write.name}", fault)
        if answer is None or fault == "unseen":
            raise no_answer(f"{write.verb} {write.name}")
        return answer

    def _apply(self, write: Write, process: str) -> bool:
        verb, name = write.verb, write.name
        known = self.objects.get(name)
        before = None if known is None else known[0]
        if verb == "create" and self._exists(write):
            self._note(process, f"create {name}", "exists")
            return False
        if verb == "delete":
            self.objects.pop(name, None)
            after = None
        else:
            after = self._whole_or_half(write, known is None)
            self.objects[name] = after, self.schedule.now_ms()
            self._born[name] = self.schedule.step
        self._note(process, f"{verb} {name}", "")
        effect = Effect(verb, name, before, after)
        for each in self.watch:
            each(effect)
        return True

    def _exists(self, write: Write) -> bool:
        if StoreFlaw.PUTS in self.flaws:
            return False
        if StoreFlaw.LOOKS_FIRST in self.flaws:
            return write.was_there
        return write.name in self.objects

    def _whole_or_half(self, write: Write, is_new: bool) -> bytes:
        some = StoreFlaw.HALF in self.flaws and write.verb == "create" and is_new
        if some and self.schedule.chance(0.2):
            # A put, because a creation of the same name would find the half object.
            self.send_later(self.schedule.rng.randint(*HALF_STEPS), write._replace(verb="put"))
            return write.data[: len(write.data) // 2]
        return write.data

    def _young(self, name: str) -> bool:
        return self.schedule.step - self._born.get(name, -STALE_STEPS) < STALE_STEPS

    def _read_fault(self, process: str, what: str) -> None:
        if self.schedule.chance(self.schedule.fault_rates.reads):
            self._note(process, what, NO_ANSWER)
            raise no_answer(what)

    def _note(self, process: str, what: str, how: str) -> None:
        self.schedule.stats[what.partition(" ")[0]] += 1
        self.trace.append((self.schedule.step, process, what, how))

    def format_trace(self, last: int = 200) -> str:
        """Return the last requests, a line per request, for a test's message."""
        lines = [f"{s:6} {who:14} {what} {how}".rstrip() for s, who, what, how in self.trace]
        return "\n".join(lines[-last:])


class ScheduledStore:
    """A `Store`. Each call is a request of its process: sent, done, answered.

    Threads of the process may share it.
    """

    replaces, skips, sends_once = True, True, False

    def __init__(self, bucket: ScheduledBucket, process: Process) -> None:
        self.url = bucket.url
        self._bucket, self._main = bucket, process

    @property
    def _process(self) -> Process:
        return self._main.current

    def create(self, name: str, data: bytes) -> bool:
        return self._write("create", name, data)

    def put(self, name: str, data: bytes) -> None:
        self._write("put", name, data)

    def put_stream(self, name: str, pieces: Iterable[Buffer], size: int) -> None:
        data = b"".join(bytes(piece) for piece in pieces)
        if len(data) != size:
            raise InvalidRequestError(f"{name}: {len(data)} bytes came, {size} were announced")
        self._write("put", name, data)

    def copy(self, source: Store, source_name: str, name: str) -> None:
        self._write("put", name, source.get(source_name))

    def get(
        self, name: str, start: int = 0, end: int | None = None, *, limit: int = WHOLE_BYTES_MAX
    ) -> bytes:
        bucket, process = self._bucket, self._process
        return process.request(lambda: bucket.read(process.name, name)[start:end])

    def get_many(
        self, names: Sequence[str], *, limit: int = WHOLE_BYTES_MAX
    ) -> list[bytes | Exception]:
        found: list[bytes | Exception] = []
        for name in names:
            try:
                found.append(self.get(name))
            except (FileNotFoundError, StorageUnavailableError) as error:
                found.append(error)
        return found

    def size(self, name: str) -> int:
        return len(self.get(name))

    def list(
        self, prefix: str = "", start_after: str = "", *, without: str = ""
    ) -> list[StoredObject]:
        bucket, process = self._bucket, self._process
        found = process.request(lambda: bucket.listing(process.name, prefix))
        return [each for each in found if is_listed(each.name, prefix, start_after, without)]

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._write("delete", name, b"")

    def sweep_uploads(self, before_ms: int, prefix: str = "") -> int:
        return 0

    def _write(self, verb: str, name: str, data: bytes) -> bool:
        bucket, process = self._bucket, self._process
        write = Write(verb, name, bytes(data), name in bucket.objects)
        return process.request(lambda: bucket.write(process.name, write))


def no_answer(what: str) -> StorageUnavailableError:
    """Return the error of a request without a response."""
    return StorageUnavailableError(f"{what}: {NO_ANSWER}", passing=True)
