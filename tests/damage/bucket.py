"""The home in an object store: a small log in memory with every kind of object."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache

import fsspec

from sparklog.clock import ManualClock, monotonic_ms, system_clock
from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.home_object import create_home
from sparklog.diskless.lease import NumberedLease
from sparklog.diskless.names import ENDPOINT, HOME, READERS, SERVICE, entry_name, state_name
from sparklog.diskless.state_objects import write_state
from sparklog.format.names import LOG
from sparklog.storage.group_store import Groups
from sparklog.tiered.layout.topic_owners import PREFIX as OWNERS
from tests.damage.actions import ACTIONS
from tests.damage.model import Actions, Files, Kind
from tests.diskless.logs import LOG_ID, T0, Home, commit_by_table

_URLS = itertools.count()
_AGO_MS = 60_000
_KEPT_MS = 15_000
_LOST_HEAD = {
    "missing": "no object was created after it, and no writer is open that knows it (PROTOCOL)"
}

_LOST_POSITION = {
    "missing": "nothing but the object itself names its number (PROTOCOL, Reading)"
}


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """A log below a URL of fsspec's memory."""

    path: str

    @property
    def url(self) -> str:
        """The log's own URL."""
        return self.path

    @property
    def _prefix(self) -> str:
        return self.path.removeprefix("memory:/") + "/"

    def files(self) -> Files:
        """The objects as they are now."""
        held = fsspec.filesystem("memory").store
        return {
            name.removeprefix(self._prefix): file.getvalue()
            for name, file in held.items()
            if name.startswith(self._prefix)
        }

    def put(self, files: Files) -> None:
        """Make these the objects."""
        memory = fsspec.filesystem("memory")
        for name, data in files.items():
            memory.pipe_file(self._prefix + name, data)

    def remove(self) -> None:
        """Delete them all."""
        held = fsspec.filesystem("memory").store
        for name in [name for name in held if name.startswith(self._prefix)]:
            del held[name]


@dataclass(slots=True)
class BucketHome:
    """See `model.Home`."""

    name: str = "bucket"
    files: Files = field(default_factory=dict)
    kinds: list[Kind] = field(default_factory=list)
    actions: Actions = ACTIONS
    foreign_words: tuple[str, ...] = (
        "recover", "copy the segment again", "Errno", "JSONDecodeError"
    )  # fmt: skip

    @contextmanager
    def lay_out(self, files: Files) -> Iterator[MemoryPlace]:
        """Lay out a copy at a URL that was never used."""
        place = MemoryPlace(f"memory://damage-{next(_URLS)}")
        place.put(files)
        try:
            yield place
        finally:
            place.remove()


def home() -> BucketHome:
    """Return the log, built again every few seconds: `status` tells of leases that are old."""
    return _built_at(monotonic_ms() // _KEPT_MS)


@lru_cache(maxsize=1)
def _built_at(moment: int) -> BucketHome:
    """Build the log: merged, staged, by table, inline; two states; a group; two leases."""
    made = Home(clock=ManualClock(system_clock() - _AGO_MS))
    create_home(made.store, LOG_ID, made.clock)
    made.topic(partitions=2, retention_ms="-1")
    made.topic("u", retention_ms="-1")
    made.lead()
    made.commit("a", "b")
    made.commit("A", topic="u", key=b"k")
    made.stage({0: ["c"], 1: ["x", "y"]})
    made.merge_all()
    write_state(made.store, made.state)
    first_state, merge = made.state.number, made.state.number
    older_service = made.store.get(_only(made, SERVICE))
    staged = made.stage({0: ["d", "e"], 1: ["z"]}), made.stage({0: ["D", "E"], 1: ["Z"]})
    by_staged = made.state.number
    *pieces, table = commit_by_table(made, {0: ["p", "q", "r", "s"], 1: ["w"]})
    by_table = made.state.number
    write_state(made.store, made.state)
    for value in ("f", "g", "h"):
        made.commit(value)
    groups = Groups(GroupObjects(made.store))
    groups.commit("g", {T0: 2}, now_ms=made.clock(), host="h")
    older_group = made.store.get(_only(made, READERS))
    groups.commit("g", {T0: 3}, now_ms=made.clock(), host="h")
    endpoint = NumberedLease(made.store, made.clock, {"address": "localhost:9092"})
    endpoint.acquire()
    older_endpoint = made.store.get(_only(made, ENDPOINT))
    endpoint.release()
    made.clock.advance(1000)
    made.lease.release()
    files = {name: data for name, (data, _) in made.bucket.objects.items()}
    last = made.state.number
    kinds = [
        Kind("home", HOME),
        _entry(files, "first entry", 0, 1),
        _entry(files, "merge entry", merge, merge - 1),
        _entry(files, "entry of staged objects", by_staged, by_staged - 1),
        _entry(files, "entry of a table", by_table, by_table - 1),
        _entry(files, "inline entry", last - 1, last - 2),
        replace(_entry(files, "head entry", last, last - 1), undetectable=_LOST_HEAD),
        _state(files, "older state", first_state, by_table),
        _state(files, "newest state", by_table, first_state),
        Kind("staged object", staged[1], staged[0], files[staged[0]], staged[1] + "0", True),
        Kind("piece of a table", pieces[0], pieces[1], files[pieces[1]], pieces[0] + "0",
             True),
        Kind("table", table, staged[0], None, table + "0"),
        *_segments(made, files),
        Kind("group", _only(made, READERS), None, older_group, _next(_only(made, READERS)),
             undetectable=_LOST_POSITION),
        Kind("service", _only(made, SERVICE), None, older_service, _next(_only(made, SERVICE))),
        Kind("endpoint", _only(made, ENDPOINT), None, older_endpoint,
             _next(_only(made, ENDPOINT))),
        Kind("owner", made.names(OWNERS)[0], made.names(OWNERS)[1]),
    ]  # fmt: skip
    return BucketHome(files=files, kinds=kinds)


def _only(made: Home, beginning: str) -> str:
    """The last object whose name begins so."""
    return made.names(beginning)[-1]


def _next(name: str) -> str:
    """The name of the number that comes next."""
    return f"{name[:-20]}{int(name[-20:]) + 1:020d}"


def _entry(files: Files, what: str, number: int, neighbour: int) -> Kind:
    name, other = entry_name(LOG_ID, number), entry_name(LOG_ID, neighbour)
    return Kind(what, name, other, files[other], _next(name))


def _state(files: Files, what: str, number: int, neighbour: int) -> Kind:
    name, other = state_name(LOG_ID, number), state_name(LOG_ID, neighbour)
    return Kind(what, name, other, files[other], _next(name))


def _segments(made: Home, files: Files) -> Iterator[Kind]:
    """A closed segment's log and manifest; the other partition's are the neighbours."""
    for suffix, what in ((LOG, "segment"), (".manifest", "manifest")):
        first, second = [name for name in made.names("t-") if name.endswith(suffix)]
        copy = first.replace("00000000000000000000-", "00000000000000000001-")
        yield Kind(what, first, second, files[second], copy, what == "segment")
