"""The trial of a store before it becomes a log's home: does it create only if there is none?

check_capabilities(store)  InvalidRequestError if several creators of a name were told they won

A log's commits are objects that are created if there are none of their names. Stores that know the
condition and still let two creators win have been released (SeaweedFS, MinIO, Ceph, RustFS), and
such a log loses commits without a word. What a store does under a load or after a failure of its
own isn't tried.
"""

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sparklog.clock import monotonic_ms
from sparklog.diskless.names import TRIAL
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.tiered.object_store.store import Store

NAMES: Final = 10
CREATORS: Final = 16  # as many as the store's client has connections
BUDGET_MS: Final = 3_000
_ROUNDS_MAX: Final = 3  # with a name each, where no creator was told anything
_REPLACES: Final = 10
_READS_MAX: Final = 1000
_BODY_BYTES: Final = 16 << 10
_UPDATE: Final = (
    "update the store (SeaweedFS before 4.18, and versions of MinIO, Ceph and RustFS, are known "
    "for it) or take another one"
)


@dataclass(frozen=True, slots=True)
class StoreCapabilities:
    """What a store that passed is good for.

    `replaces`: a put over an object replaces it atomically, so that data may lie in entries of the
    ledger and be cut from them later.
    """

    replaces: bool


def check_capabilities(
    store: Store,
    *,
    names: int = NAMES,
    creators: int = CREATORS,
    budget_ms: int = BUDGET_MS,
    clock: Callable[[], float] = monotonic_ms,
) -> StoreCapabilities:
    """Try whether `store` can be a log's home, with objects of its own that it removes again.

    Of each of `names` names `creators` threads create an object at once, each over a connection of
    its own; with `creators=1` all is done in the caller's thread, and no race is tried. No further
    name is begun once `budget_ms` are over.
    Cost: `names * (creators + 7)` requests and some 40 more (10 names, 16 creators: about 270);
    a second or two by a network, less beside the store. SeaweedFS has those who meet wait for
    whole seconds: five for one name, of which the budget makes the last.
    Raises:
        InvalidRequestError: it isn't fit; the message says what it did and what to do.
        StorageUnavailableError: it doesn't answer, or refuses.
    """
    trial = _CapabilityCheck(store, creators)
    try:
        until_ms = clock() + budget_ms
        for number in range(names):
            if number == 0 or clock() < until_ms:
                trial.race(number)
        return StoreCapabilities(replaces=store.replaces and trial.replaces())
    finally:
        trial.remove()


class _CapabilityCheck:
    def __init__(self, store: Store, creators: int) -> None:
        self._store, self._creators = store, creators
        self._prefix = f"{TRIAL}{uuid.uuid4().hex}/"
        self._names: list[str] = []

    def race(self, number: int) -> None:
        """Have all creators create one name; what isn't decided after some names is told."""
        for again in range(_ROUNDS_MAX):
            name = self._name(f"{number}-{again}")
            self._expect_none(name)
            told = _at_once([partial(self._create, name, who) for who in range(self._creators)])
            if self._decided(name, told):
                self._expect_refusal(name)
                return
        raise next(one for one in told if isinstance(one, StorageUnavailableError))

    def _create(self, name: str, who: int) -> bool | StorageUnavailableError:
        try:
            won = self._store.create(name, _body(who))
        except StorageUnavailableError as unclear:
            if not unclear.passing:
                raise
            return unclear
        if not won and who % 8 == 7:  # two of sixteen look while the others are still at it
            self._winner(name)
        return won

    def _decided(self, name: str, told: Sequence[bool | StorageUnavailableError]) -> bool:
        """Check what the creators were told against what lies there; False if nothing does."""
        won = [who for who, one in enumerate(told) if one is True]
        if len(won) > 1:
            raise self._unfit(
                f"of {self._creators} requests that created {name} at once {len(won)} were told "
                f"that they had, where one may be; {_UPDATE}"
            )
        if won or False in told or self._is_there(name):
            # Without a winner: its answer was lost, or it met itself when the client sent it again.
            winner = self._winner(name)
            if won and winner != won[0]:
                raise self._unfit(
                    f"creator {won[0]} of {name} was told that it had won, and the object is that "
                    f"of creator {winner}; {_UPDATE}"
                )
            return True
        return False

    def _winner(self, name: str) -> int:
        """Return whose object it is. It is there, for the store said so, and it is whole."""
        try:
            found = self._store.get(name)
        except FileNotFoundError:
            raise self._unfit(
                f"{name} was created, or was said to be there, and a get found none; is there a "
                "cache or a proxy before the store? A store that shows an object later than it "
                "says so can't hold a log"
            ) from None
        who = int.from_bytes(found[:8], "big")
        if who >= self._creators or found != _body(who):
            raise self._unfit(
                f"{name} holds {len(found)} bytes that no creator wrote: it shows before it is "
                f"whole, or one wrote over another; {_UPDATE}"
            )
        return who

    def _expect_none(self, name: str) -> None:
        if self._is_there(name):
            raise self._unfit(f"{name} is there, and nobody made it; is there a cache before it?")

    def _expect_refusal(self, name: str) -> None:
        """Create what is there."""
        before = self._winner(name)
        try:
            made = self._store.create(name, _body((before + 1) % max(2, self._creators)))
        except StorageUnavailableError as unclear:
            if not unclear.passing:
                raise
            made = False
        if made or self._winner(name) != before:
            raise self._unfit(
                f"{name} was there, and a request to create it only if there is none replaced it: "
                f"the condition is ignored; {_UPDATE}"
            )

    def replaces(self) -> bool:
        """Tell whether a get sees the old or the new object while a put replaces it."""
        name, bodies = self._name("replaced"), [b"a" * 1000, b"b" * _BODY_BYTES * 4]
        self._store.put(name, bodies[0])
        done = threading.Event()

        def write() -> bool:
            try:
                for number in range(1, _REPLACES + 1):
                    self._store.put(name, bodies[number % 2])
                return True
            finally:
                done.set()

        def read() -> bool:
            for _ in range(_READS_MAX):
                try:
                    if self._store.get(name) not in bodies:
                        return False
                except FileNotFoundError:
                    return False
                if done.is_set():
                    break
            return True

        return all(_at_once([write, read, read] if self._creators > 1 else [write, read]))

    def remove(self) -> None:
        """Delete what was made, as far as that goes: what the store did before is what counts."""
        try:
            self._store.delete(self._names)
        except StorageUnavailableError:
            return

    def _name(self, last: str) -> str:
        self._names.append(f"{self._prefix}{last}")
        return self._names[-1]

    def _is_there(self, name: str) -> bool:
        try:
            self._store.get(name)
        except FileNotFoundError:
            return False
        return True

    def _unfit(self, what: str) -> InvalidRequestError:
        url = self._store.url
        return InvalidRequestError(f"{url} can't be a log's home: {what}", path=url)


def _body(who: int) -> bytes:
    """What a creator writes: of its own length, and no part of another's."""
    word = who.to_bytes(8, "big")
    return word * (_BODY_BYTES // 8 + who)


def _at_once(work: Sequence[Callable[[], Any]]) -> list[Any]:
    """Do all of it at one time; in turn if it is one or two. The first error is raised last."""
    if len(work) <= 2:
        return [one() for one in work]
    start = threading.Barrier(len(work))

    def wait(one: Callable[[], Any]) -> Any:
        start.wait()
        return one()

    with ThreadPoolExecutor(len(work), thread_name_prefix="sparklog-trial") as pool:
        return [future.result() for future in [pool.submit(wait, one) for one in work]]
