"""Checks that a store is suitable for a log: it must create an object only if there is none.

    check_capabilities(store)  # InvalidRequestError if several creators of a name succeed

A log's commits are objects that are created only if their names are free. Released versions of
several stores (SeaweedFS, MinIO, Ceph, RustFS) accept the condition and still let two creators
succeed, so that such a log would silently lose commits. The behavior under load or after a failure
is not checked.
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
_ROUNDS_MAX: Final = 3  # names to try if no creator gets an answer
_REPLACES: Final = 10
_READS_MAX: Final = 1000
_BODY_BYTES: Final = 16 << 10
_UPDATE: Final = (
    "update the store (SeaweedFS before 4.18 and some versions of MinIO, Ceph and RustFS have this "
    "fault) or use another store"
)


@dataclass(frozen=True, slots=True)
class StoreCapabilities:
    """The capabilities of a store that passed the check.

    `replaces` means that a PUT replaces an existing object atomically. Ledger entries may then
    contain inline data that are removed later.
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
    """Check that `store` is suitable for a log, with temporary objects that are deleted again.

    For each of `names` names, `creators` threads create an object at the same time, each over its
    own connection; with `creators=1` all requests are made in the caller's thread, without a race.
    No further name is tried after `budget_ms`.

    Cost: `names * (creators + 7)` requests and about 40 more (10 names, 16 creators: about 270); a
        second or two over a network, less near the store. SeaweedFS delays competing creators by
        several seconds: five per name, so the budget ends the check after the first name.

    Raises:
        InvalidRequestError: The store is unsuitable. The message describes the store's behaviour
            and the remedy.
        StorageUnavailableError: The store doesn't answer, or refuses requests.
    """
    trial = _CapabilityCheck(store, creators)
    try:
        until_ms = clock() + budget_ms
        for number in range(names):
            # At least one name is checked, however slow the store is.
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
        """Create an object from several threads at the same time; exactly one of them must succeed.

        The race is repeated with another name if no request was answered.
        """
        for again in range(_ROUNDS_MAX):
            name = self._name(f"{number}-{again}")
            # This GET before the creation also reveals stores and caches that remember a miss.
            if self._is_there(name):
                raise self._unfit(
                    f"{name} exists, but was not created; check for a cache in front of the store"
                )
            creates = [partial(self._create, name, creator) for creator in range(self._creators)]
            answers = _at_once(creates)
            if self._decided(name, answers):
                self._expect_refusal(name)
                return
        raise next(answer for answer in answers if isinstance(answer, StorageUnavailableError))

    def _create(self, name: str, creator: int) -> bool | StorageUnavailableError:
        try:
            won = self._store.create(name, _body(creator))
        except StorageUnavailableError as unclear:
            if not unclear.passing:
                raise
            return unclear
        if not won and creator % 8 == 7:  # two of sixteen read while the others still create
            self._winner(name)
        return won

    def _decided(self, name: str, answers: Sequence[bool | StorageUnavailableError]) -> bool:
        """Check that at most one creator succeeded, and that the object has its content.

        Returns:
            False if no object was stored, so that the name decides nothing.
        """
        won = [creator for creator, answer in enumerate(answers) if answer is True]
        if len(won) > 1:
            raise self._unfit(
                f"{len(won)} of {self._creators} concurrent requests to create {name} succeeded, "
                f"but only the first request may succeed; {_UPDATE}"
            )
        if won or False in answers or self._is_there(name):
            # No winner: its answer was lost, or the client sent the request twice.
            winner = self._winner(name)
            if won and winner != won[0]:
                raise self._unfit(
                    f"the store confirmed that creator {won[0]} created {name}, but the object "
                    f"has the content of creator {winner}; {_UPDATE}"
                )
            return True
        return False

    def _winner(self, name: str) -> int:
        """Return the creator of the stored object, after checking the complete object."""
        try:
            content = self._store.get(name)
        except FileNotFoundError:
            raise self._unfit(
                f"{name} was created, or reported to exist, but a GET did not find it. A log "
                "needs a store that shows each object as soon as its creation is confirmed: check "
                "for a cache or a proxy in front of the store, or use another store"
            ) from None
        creator = int.from_bytes(content[:8], "big")
        if creator >= self._creators or content != _body(creator):
            raise self._unfit(
                f"{name} has {len(content)} bytes that no creator wrote: an object is visible "
                f"before it is complete, or a request overwrote an existing object; {_UPDATE}"
            )
        return creator

    def _expect_refusal(self, name: str) -> None:
        """Try to create an object that exists."""
        before = self._winner(name)
        try:
            # Another content than the stored one, so that a replaced object is recognized.
            made = self._store.create(name, _body((before + 1) % max(2, self._creators)))
        except StorageUnavailableError as unclear:
            if not unclear.passing:
                raise
            made = False
        if made or self._winner(name) != before:
            raise self._unfit(
                f"a request to create {name} only if it does not exist replaced the existing "
                f"object: the store ignores the condition; {_UPDATE}"
            )

    def replaces(self) -> bool:
        """Return True if a GET during a PUT returns either the old or the new object."""
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
        """Delete the temporary objects if possible.

        Failures don't affect the result of the check.
        """
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


def _body(creator: int) -> bytes:
    """Return the content that a creator writes.

    Contents have different lengths and no word in common, so a truncated or mixed object equals
    none of them.
    """
    word = creator.to_bytes(8, "big")
    return word * (_BODY_BYTES // 8 + creator)


def _at_once(requests: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run the functions concurrently (up to two in turn); raise the first error."""
    if len(requests) <= 2:
        return [request() for request in requests]
    # Without a common start, the first request could end before the last one begins.
    start = threading.Barrier(len(requests))

    def wait(request: Callable[[], Any]) -> Any:
        start.wait()
        return request()

    with ThreadPoolExecutor(len(requests), thread_name_prefix="sparklog-trial") as pool:
        return [future.result() for future in [pool.submit(wait, request) for request in requests]]
