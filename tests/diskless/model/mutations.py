"""Each rule of the protocol, and how it is switched off in the real code, or in the store.

`seed`: one that shows soon what happens without it; the code may ask for more or fewer requests one
day, and then another one does: `python -m tests.diskless.model --rule all` finds it.

Not here, for no seed that is quick enough shows them: `replaced`, `covered`, `relist`; see
`test_orders`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest import mock

from sparklog.diskless import commit_log, entry_building, garbage, merging, upkeep
from sparklog.diskless.entries import Entry, decode, encode, new_attempt_id
from sparklog.diskless.entry_creation import EntryCreator, RetryPolicy
from sparklog.diskless.garbage import Garbage
from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.lease import TermLease
from sparklog.diskless.ledger import EntryReader, Head
from sparklog.diskless.merging import Merger
from sparklog.diskless.names import state_name
from sparklog.diskless.staging import ObjectPuts
from sparklog.diskless.state import DisklessState
from sparklog.diskless.state_objects import StateObjects, decode_state
from sparklog.errors import BatchConflictError, StorageUnavailableError
from sparklog.log import commit as log_commit
from sparklog.log.commit import CommitResult
from sparklog.log.read_retry import PartitionRead, StaleReadRetries, final_error
from sparklog.storage.groups import reader_to_json
from sparklog.storage.ledger_records import TopicRecord
from sparklog.storage.stored_json import seal
from sparklog.testing.scheduled_store import ScheduledStore, StoreFlaw
from sparklog.tiered.object_store.store import Store
from tests.diskless.model.oracle import Violation
from tests.diskless.model.simulation import ALL, DELETIONS, Cast, simulate

COMMITS: Final = Cast(readers=False, services=False, steps=(600, 1500, 3000))
"""Enough where only writers and the administrator are needed."""
RESETS: Final = replace(
    COMMITS, chores=(20,), kinds="rrrrs", naps=(0.05,), kills=(0.02,), steps=(3000,)
)
NAPS: Final = replace(ALL, naps=(0.05,))
SERVICES: Final = replace(ALL, readers=False, chores=(1,), reads=(0,), naps=(0.05,), kills=(0,))
GIVING_UP: Final = replace(COMMITS, writers=("", ""), chores=(1,), writes=(0.5,), reads=(0,))
LOST_PLANS: Final = replace(COMMITS, lost_plans=0.3, kills=(0.02,))


Off = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A rule, what is done without it, and where that shows."""

    rule: str
    without: str
    seed: int = 0
    off: Off = nullcontext
    lie: StoreFlaw | None = None
    cast: Cast = ALL


def first_seed(mutation: Mutation, seeds: Iterable[int]) -> tuple[int, Violation] | None:
    """Return the first of `seeds` that shows that the rule is needed, and how."""
    flaws = frozenset([mutation.lie] if mutation.lie else ())
    with mutation.off():
        for seed in seeds:
            try:
                simulate(seed, mutation.cast, flaws)
            except Violation as violation:
                return seed, violation
    return None


@contextmanager
def _patched(target: object, name: str, value: object) -> Iterator[None]:
    with mock.patch.object(target, name, value):
        yield


def _around(target: Any, name: str, wrapper: Callable[..., Any]) -> Off:
    """Replace a function: `wrapper` is called with the real one and its arguments."""
    real = getattr(target, name)
    return lambda: _patched(target, name, lambda *args, **named: wrapper(real, *args, **named))


# --- commits -------------------------------------------------------------------------------------


class _Entries:
    """An `EntryReader` whose answers are changed; see `_entries_of_creator`."""

    def __init__(self, real: EntryReader, store: Any, find: Callable[[Any, int], Any]) -> None:
        self._real, self.store, self._find = real, store, find

    def find(self, number: int) -> Entry | None:
        return self._find(self._real, number)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _entries_of_creator(change: Callable[[EntryReader], Any]) -> Off:
    def wrapper(
        real: Any, self: EntryCreator, entries: EntryReader, retry_policy: RetryPolicy
    ) -> None:
        real(self, change(entries), retry_policy)

    return _around(EntryCreator, "__init__", wrapper)


def _anothers(entries: EntryReader) -> _Entries:
    """Whatever lies there has another attempt's id."""

    def find(real: EntryReader, number: int) -> Entry | None:
        found = real.find(number)
        return None if found is None else replace(found, id=f"not {found.id}")

    return _Entries(entries, entries.store, find)


class _NewAttempts:
    """A store that is given another attempt each time that a number is created again."""

    def __init__(self, store: Store) -> None:
        self._store, self._sent = store, set[str]()

    def create(self, name: str, raw: bytes) -> bool:
        if name in self._sent:
            number = int(name.rpartition("/")[2])
            entry = decode(raw, number=number, path=name)
            again = replace(entry, id=new_attempt_id())
            raw = encode(number, again, raw[entry.data_at :])
        self._sent.add(name)
        return self._store.create(name, raw)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _new_attempts(entries: EntryReader) -> _Entries:
    return _Entries(entries, _NewAttempts(entries.store), EntryReader.find)


def _fails(*_: object) -> None:
    raise StorageUnavailableError("nothing was committed")


def _first_decision(real: Any, commits: Any, decide: Callable[[Any], Any]) -> Any:
    made: list[Any] = []

    def once(state: Any) -> Any:
        if not made:
            made.append(decide(state))
        return made[0]

    return real(commits, once)


def _only_equal(real: Any, commits: Any, identity: Any) -> Any:
    last = commits.state.writers.get(identity.writer)
    same = last is not None and last.batch == identity.batch
    return real(commits, identity) if same else None


def _any_fingerprint(real: Any, commits: Any, identity: Any) -> Any:
    try:
        return real(commits, identity)
    except BatchConflictError:
        return CommitResult(True, 0, {})


def _of_any_topic(real: Any, state: Any, chunks: Any, *, home: str) -> None:
    real(state, [replace(chunk, topic_id="") for chunk in chunks], home=home)


def _of_any_age(real: Any, state: Any, chunks: Any, *, home: str) -> None:
    state = state.copy()
    state.floor = 0
    real(state, chunks, home=home)


def _bases_of_nought(real: Any, name: str, topic: Any, bases: Any, *args: Any, **named: Any) -> Any:
    return real(name, topic, dict.fromkeys(bases, 0), *args, **named)


def _nothing(*_: object) -> None: ...


# --- staging, readers ----------------------------------------------------------------------------


def _unacknowledged(real: Any, *args: Any) -> None:
    with suppress(StorageUnavailableError):
        real(*args)


def _any_history(
    self: StateObjects, log_id: str, number: int, *, is_strict: bool
) -> DisklessState | None:
    name = state_name(log_id, number)
    with suppress(FileNotFoundError):
        return decode_state(self._store.get(name), path=name)
    return None


def _no_news(real: Any, self: Head, *args: Any) -> DisklessState:
    return self.state if self.state.number >= 0 else real(self, *args)


def _overwritten(self: GroupObjects, prefix: str, number: int, reader: Any) -> bool:
    content = seal("reader", {"attempt": "", "reader": reader_to_json(reader)})
    self._store.put(f"{prefix}{0:020d}", content)
    return True


@contextmanager
def _one_position() -> Iterator[None]:
    with (
        mock.patch.object(GroupObjects, "create_position", _overwritten),
        mock.patch.object(GroupObjects, "delete_positions", _nothing),
    ):
        yield


def _unjudged(self: PartitionRead, error: Exception, retries: StaleReadRetries) -> None:
    raise final_error(self, error) from error


@contextmanager
def _damage_at_once() -> Iterator[None]:
    with (
        mock.patch.object(StaleReadRetries, "should_retry", return_value=False),
        mock.patch.object(PartitionRead, "prepare_retry", _unjudged),
    ):
        yield


# --- services ------------------------------------------------------------------------------------


@contextmanager
def _any_term() -> Iterator[None]:
    def swap(self: Merger, *args: Any, term: int, **named: Any) -> Any:
        return real(self, *args, term=self._log.follow().term, **named)

    real = Merger.swap
    with (
        mock.patch.object(TermLease, "check", _nothing),
        mock.patch.object(Merger, "swap", swap),
    ):
        yield


def _deleted_first(real: Any, log: Any, planned_on: Any, starts: Any, **named: Any) -> Any:
    for key, start in starts.items():
        gone = [x.object for x in planned_on.extents.get(key, ()) if x.end <= start]
        log.store.delete([name for name in gone if not name.startswith("ledger")])
    return real(log, planned_on, starts, **named)


def _manifest_first(real: Any, self: Merger, merge: Any, made: Any, **named: Any) -> Any:
    for one in made:
        self.put_manifest(one, self._log.state.log.time_ms + 1)
    return real(self, merge, made, **named)


def _put_last(real: Any, self: Merger, made: Any, time_ms: int) -> None:
    real(self, made, self._log.clock())


def _above_the_floor(real: Any, self: Garbage, state: DisklessState, *args: Any) -> None:
    state = state.copy()
    state.floor = state.next_number + 1
    real(self, state, *args)


def _not_kept(real: Any, self: ScheduledStore, name: str, data: bytes) -> None:
    if name.startswith("ledger-"):
        self.delete([name])
    else:
        real(self, name, data)


def _by_own_clock(self: Garbage, state: DisklessState, topic_id: str, sign: object) -> bool:
    return self._log.clock() >= state.log.deleted[topic_id].until_ms


MUTATIONS: Final = (
    Mutation(
        rule="create", without="entries are put, not created", lie=StoreFlaw.PUTS, cast=COMMITS,
        seed=1,
    ),
    Mutation(
        rule="atomic", without="the store's create looks, then puts", lie=StoreFlaw.LOOKS_FIRST,
        cast=COMMITS,
    ),
    Mutation(
        rule="whole", without="a created object shows before it is whole", lie=StoreFlaw.HALF,
        cast=COMMITS,
    ),
    Mutation(
        rule="consistent", without="a get may miss what was created", lie=StoreFlaw.STALE_GET,
        cast=COMMITS,
    ),
    Mutation(
        rule="mine", without="an entry that exists is taken for another's", cast=COMMITS, seed=13,
        off=_entries_of_creator(_anothers),
    ),
    Mutation(
        rule="fate", without="after a time-out comes a new attempt, not the same one",
        seed=25, cast=COMMITS, off=_entries_of_creator(_new_attempts),
    ),
    Mutation(
        rule="noop", without="giving up just reports failure", cast=GIVING_UP,
        off=lambda: _patched(EntryCreator, "_give_up", _fails),
    ),
    Mutation(
        rule="decide", without="the first decision stays, though other entries came between",
        cast=COMMITS, seed=3, off=_around(log_commit, "change", _first_decision),
    ),
    Mutation(
        rule="identity", without="nobody looks whether a micro-batch is in already",
        cast=COMMITS, seed=3, off=lambda: _patched(log_commit, "committed", lambda *_: None),
    ),
    Mutation(
        rule="older", without="a number is compared with the writer's last only for equality",
        cast=COMMITS, seed=5, off=_around(log_commit, "committed", _only_equal),
    ),
    Mutation(
        rule="fingerprint", without="a replay is the same number, whatever its fingerprint",
        cast=LOST_PLANS, seed=2, off=_around(log_commit, "committed", _any_fingerprint),
    ),
    Mutation(
        rule="reset", without="what was planned before a reset may come after it",
        cast=RESETS, seed=15, off=lambda: _patched(entry_building, "_check_reset", lambda *_: None),
    ),
    Mutation(
        rule="topic-id", without="a topic that was made again is taken for the one planned for",
        seed=22, cast=COMMITS, off=_around(commit_log, "check_chunks", _of_any_topic),
    ),
    Mutation(
        rule="bases", without="a topic that is made again begins at 0",
        cast=COMMITS, seed=22, off=_around(TopicRecord, "of", _bases_of_nought),
    ),
    Mutation(
        rule="acked", without="tasks report puts that weren't acknowledged",
        cast=COMMITS, seed=25, off=_around(ObjectPuts, "_put", _unacknowledged),
    ),
    Mutation(
        rule="floor", without="what was staged below the stage floor may be committed",
        seed=24, off=_around(commit_log, "check_chunks", _of_any_age), cast=NAPS,
    ),
    Mutation(
        rule="history", without="a state is taken without a look at its entry",
        seed=8, off=lambda: _patched(StateObjects, "_read", _any_history),
    ),
    Mutation(
        rule="news", without="the newest state is taken for the head",
        off=_around(Head, "follow", _no_news),
    ),
    Mutation(
        rule="heal", without="an object that is gone is damage at once", seed=31,
        off=_damage_at_once,
    ),
    Mutation(
        rule="group", without="a group's positions are one object, overwritten",
        seed=35, off=_one_position,
    ),
    Mutation(
        rule="term", without="a service creates entries though the term isn't its own",
        cast=SERVICES, seed=4, off=_any_term,
    ),
    Mutation(
        rule="past", without="segments of the sweeper's own or later terms are swept",
        cast=SERVICES, seed=13, off=lambda: _patched(garbage, "is_past", lambda *_: True),
    ),
    Mutation(
        rule="void", without="a merge replaces what lies there, not what it read",
        seed=1, off=lambda: _patched(merging, "find", lambda *_: 0),
    ),
    Mutation(
        rule="start", without="what expires is deleted before the entry",
        seed=38, off=_around(upkeep, "raise_log_starts", _deleted_first),
    ),
    Mutation(
        rule="manifest", without="a manifest is put before the entry",
        seed=1, off=_around(Merger, "swap", _manifest_first),
    ),
    Mutation(
        rule="missing", without="a service that died leaves a segment without a manifest",
        seed=99, off=lambda: _patched(Garbage, "_make_manifests", lambda *_: None),
    ),
    Mutation(
        rule="later", without="of manifests that overlap the one that was put last counts",
        seed=55, off=_around(Merger, "put_manifest", _put_last),
    ),
    Mutation(
        rule="staged", without="staged objects that nobody named go above the floor, too",
        seed=0, off=_around(Garbage, "_sweep_staged", _above_the_floor),
    ),
    Mutation(
        rule="keep", without="entries whose data nobody needs are deleted, not cut",
        off=_around(ScheduledStore, "put", _not_kept),
    ),
    Mutation(
        rule="deleted", without="what a deleted topic holds is garbage at once",
        cast=DELETIONS,
        off=lambda: _patched(
            DisklessState, "kept_extents", lambda self: iter(self.extents.values())
        ),
    ),
    Mutation(
        rule="until", without="a service gives deleted topics up by its own clock",
        cast=DELETIONS, seed=62, off=lambda: _patched(Garbage, "_is_over", _by_own_clock),
    ),
    Mutation(
        rule="cut", without="inline data are cut while an extent lies in them",
        seed=1, off=lambda: _patched(DisklessState, "names_by_entry", lambda _: set()),
    ),
)  # fmt: skip

BY_RULE: Final = {mutation.rule: mutation for mutation in MUTATIONS}
