"""Time, locks and random names of the library, as a schedule has them: its seed decides."""

import os
import random
import sys
import threading
import time
import uuid
from _thread import get_ident
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from unittest import mock

from sparklog import clock
from sparklog.diskless import state_objects
from sparklog.log import read_retry
from sparklog.testing.schedules import Process, Schedule

T = TypeVar("T")


class _Time:
    """`time`, as the process whose turn it is has it; to other threads it is what it was."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule, self._own = schedule, get_ident()

    def monotonic(self) -> float:
        return self._schedule.now_ms() / 1000 if get_ident() == self._own else time.monotonic()

    def time_ns(self) -> int:
        return self._schedule.now_ms() * 1_000_000 if get_ident() == self._own else time.time_ns()

    def sleep(self, seconds: float) -> None:
        if get_ident() == self._own:
            _running(self._schedule).sleep(seconds * 1000)
        else:
            time.sleep(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class TurnLock:
    """A lock between processes that take turns: who waits for it lets others have theirs."""

    def __init__(self, schedule: Schedule, *, reentrant: bool = False) -> None:
        self._schedule, self._reentrant = schedule, reentrant
        self._owner: Process | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = self._schedule.running
        while self._depth and not (self._reentrant and self._owner is me):
            if not blocking:
                return False
            _running(self._schedule).idle(1)
        self._owner, self._depth = me, self._depth + 1
        return True

    def release(self) -> None:
        assert self._depth, "released, and not held"
        self._depth -= 1

    def locked(self) -> bool:
        return self._depth > 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _is_owned(self) -> bool:  # asked by a Condition
        return self._depth > 0 and self._owner is self._schedule.running

    def _at_fork_reinit(self) -> None:
        self._depth = 0


class _Inline:
    """An executor without threads."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def submit(self, work: Callable[..., Any], *args: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **named))
        except Exception as error:
            done.set_exception(error)
        return done

    def shutdown(self, *_: object, **__: object) -> None: ...

    def map(self, work: Callable[..., Any], *lists: Iterable[Any]) -> Iterator[Any]:
        return map(work, *lists)

    def __enter__(self) -> "_Inline":
        return self

    def __exit__(self, *_: object) -> None: ...


def _running(schedule: Schedule) -> Process:
    assert schedule.running is not None, "somebody waits who is no process of the schedule"
    return schedule.running


@contextmanager
def taken_over(schedule: Schedule) -> Iterator[None]:
    """Let the library's waits be steps of the schedule, and its random names the seed's.

    Threads that other tests left, and finalizers of what they left, wait as ever.
    """
    own, real_wait = get_ident(), threading.Event.wait

    def in_turn(virtual: Callable[[], T], real: Callable[[], T]) -> Callable[[], T]:
        return lambda: virtual() if get_ident() == own else real()

    uuid4, urandom = uuid.uuid4, os.urandom
    locks = threading.Lock, threading.RLock

    def wait(event: threading.Event, timeout: float | None = None) -> bool:
        if get_ident() != own or schedule.running is None:
            return real_wait(event, timeout)
        if not event.is_set():
            _running(schedule).sleep((60 if timeout is None else timeout) * 1000)
        return event.is_set()

    rng, state = schedule.rng, random.getstate()

    def new_uuid() -> uuid.UUID:
        return uuid.UUID(int=rng.getrandbits(128), version=4)

    def new_bytes(size: int) -> bytes:
        return rng.randbytes(size) if get_ident() == own else urandom(size)

    random.seed(schedule.seed)
    with ExitStack() as patches:
        for target, name, value in (
            (clock, "time", _Time(schedule)),
            (threading.Event, "wait", wait),
            (threading, "Lock", in_turn(lambda: TurnLock(schedule), locks[0])),
            (threading, "RLock", in_turn(lambda: TurnLock(schedule, reentrant=True), locks[1])),
            (
                threading,
                "get_ident",
                lambda: id(schedule.running) if get_ident() == own else get_ident(),
            ),
            (read_retry, "RETRY_MS", 60_000),  # a request takes some seconds of this time
            (state_objects, "EVERY", 7),  # states are written often
            (state_objects, "SHARE", 1000),
            (uuid, "uuid4", in_turn(new_uuid, uuid4)),
            (os, "urandom", new_bytes),
        ):
            patches.enter_context(mock.patch.object(target, name, value))
        patches.callback(random.setstate, state)
        without_threads(patches)
        yield


def without_threads(patches: ExitStack) -> None:
    """Let the library's pools do their work in turn, in the thread that asks for it."""
    for module in [each for name, each in sys.modules.items() if name.startswith("sparklog.")]:
        if hasattr(module, "ThreadPoolExecutor"):
            patches.enter_context(mock.patch.object(module, "ThreadPoolExecutor", _Inline))
