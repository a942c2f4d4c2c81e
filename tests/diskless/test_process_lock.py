"""The lock that a forked child gets anew."""

import os
import threading
import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from sparklog.diskless import process_lock
from sparklog.diskless.process_lock import ProcessLock


def in_child(work: Callable[[], bool]) -> bool:
    """What `work` says in a forked child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of other tests
        pid = os.fork()
    if not pid:
        said = False
        try:
            said = work()
        finally:
            os._exit(0 if said else 1)
    ends = time.monotonic() + 240
    while time.monotonic() < ends:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status == 0
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False  # it hangs


def test_what_another_thread_held_is_free_in_a_child() -> None:
    lock, held, over = ProcessLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def work() -> bool:
        for _ in range(2):
            with lock:
                pass
        return in_child(lambda: _enters(lock))  # and a child's child

    try:
        assert in_child(work)
    finally:
        over.set()
        thread.join()
    assert _enters(lock)


def _enters(lock: ProcessLock) -> bool:
    with lock:
        return True


def test_a_child_that_is_forked_within_it_leaves_it_to_others() -> None:
    lock = ProcessLock()

    def work() -> bool:
        entered = threading.Event()

        def enter() -> None:
            lock.__enter__()
            entered.set()

        thread = threading.Thread(target=enter)  # holds it, and goes on holding it
        thread.start()
        thread.join()
        lock.__exit__(None, None, None)  # of the `with` that the fork was made in
        late = threading.Thread(target=enter, daemon=True)
        entered.clear()
        late.start()
        return not entered.wait(0.2)

    with lock:
        assert in_child(work)
    assert _enters(lock)


def test_threads_of_a_child_that_race_for_it_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = ProcessLock()

    def work() -> bool:
        real, both = threading.Lock, threading.Barrier(2)

        def made_together() -> object:
            both.wait(240)  # each has seen that there is none yet
            return real()

        inside, most, gate = [0], [0], real()

        def enter() -> None:
            with lock:
                with gate:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                time.sleep(0.1)
                with gate:
                    inside[0] -= 1

        threads = [threading.Thread(target=enter) for _ in range(2)]
        names = SimpleNamespace(Lock=made_together, get_ident=threading.get_ident)
        monkeypatch.setattr(process_lock, "threading", names)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return most == [1] and inside == [0]

    assert in_child(work)
