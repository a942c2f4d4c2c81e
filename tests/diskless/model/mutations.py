"""Each rule of the protocol, and how it is switched off in the real code, or in the store.

`seed`: the first that shows what happens without it; the code may ask for more or fewer requests
one day, and then another one is: `python -m tests.diskless.model --rule all` finds it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest import mock

from sparklog.diskless import commit_log, entry_building
from sparklog.diskless.entries import Entry, decode, encode, new_attempt_id
from sparklog.diskless.entry_creation import EntryCreator, Patience
from sparklog.diskless.ledger import EntryReader
from sparklog.errors import BatchConflictError, StorageUnavailableError
from sparklog.log import commit as log_commit
from sparklog.log.commit import CommitResult
from sparklog.storage.ledger_records import TopicRecord
from sparklog.testing.scheduled_store import Lie
from sparklog.tiered.object_store.store import Store
from tests.diskless.model.oracle import Violation
from tests.diskless.model.simulation import ALL, Cast, simulate

COMMITS: Final = Cast(readers=False, services=False)
"""Enough where only writers and the administrator are needed."""
RESETS: Final = replace(COMMITS, chores=(20,), kinds="rrrrs", naps=(0.05,), kills=(0.02,))
LOST_PLANS: Final = replace(COMMITS, lost_plans=0.3, kills=(0.02,))


Off = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A rule, what is done without it, and where that shows."""

    rule: str
    without: str
    seed: int = 0
    off: Off = nullcontext
    lie: Lie | None = None
    cast: Cast = ALL


def first_seed(mutation: Mutation, seeds: Iterable[int]) -> tuple[int, Violation] | None:
    """Return the first of `seeds` that shows that the rule is needed, and how."""
    lies = frozenset([mutation.lie] if mutation.lie else ())
    with mutation.off():
        for seed in seeds:
            try:
                simulate(seed, mutation.cast, lies)
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
    def wrapper(real: Any, self: EntryCreator, entries: EntryReader, patience: Patience) -> None:
        real(self, change(entries), patience)

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


MUTATIONS: Final = (
    Mutation(
        rule="create", without="entries are put, not created", lie=Lie.PUTS, cast=COMMITS, seed=1
    ),
    Mutation(
        rule="atomic", without="the store's create looks, then puts", lie=Lie.LOOKS_FIRST,
        cast=COMMITS,
    ),
    Mutation(
        rule="whole", without="a created object shows before it is whole", lie=Lie.HALF,
        cast=COMMITS,
    ),
    Mutation(
        rule="consistent", without="a get may miss what was created", lie=Lie.STALE_GET,
        cast=COMMITS,
    ),
    Mutation(
        rule="mine", without="an entry that exists is taken for another's", cast=COMMITS,
        off=_entries_of_creator(_anothers),
    ),
    Mutation(
        rule="fate", without="after a time-out comes a new attempt, not the same one",
        cast=COMMITS, off=_entries_of_creator(_new_attempts),
    ),
    Mutation(
        rule="noop", without="giving up just reports failure", cast=COMMITS,
        off=lambda: _patched(EntryCreator, "_give_up", _fails), seed=374,
    ),
    Mutation(
        rule="decide", without="the first decision stays, though other entries came between",
        cast=COMMITS, off=_around(log_commit, "change", _first_decision),
    ),
    Mutation(
        rule="identity", without="nobody looks whether a micro-batch is in already",
        cast=COMMITS, off=lambda: _patched(log_commit, "committed", lambda *_: None),
    ),
    Mutation(
        rule="older", without="a number is compared with the writer's last only for equality",
        cast=COMMITS, off=_around(log_commit, "committed", _only_equal),
    ),
    Mutation(
        rule="fingerprint", without="a replay is the same number, whatever its fingerprint",
        cast=LOST_PLANS, off=_around(log_commit, "committed", _any_fingerprint), seed=59,
    ),
    Mutation(
        rule="reset", without="what was planned before a reset may come after it",
        cast=RESETS, off=lambda: _patched(entry_building, "_check_reset", lambda *_: None),
    ),
    Mutation(
        rule="topic-id", without="a topic that was made again is taken for the one planned for",
        cast=COMMITS, off=_around(commit_log, "check_chunks", _of_any_topic),
    ),
    Mutation(
        rule="bases", without="a topic that is made again begins at 0",
        cast=COMMITS, off=_around(TopicRecord, "of", _bases_of_nought),
    ),
)  # fmt: skip

BY_RULE: Final = {mutation.rule: mutation for mutation in MUTATIONS}
