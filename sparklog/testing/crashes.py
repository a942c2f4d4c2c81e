"""Simulate every crash of a function: `kill -9` and a power cut at each effect.

    def work(fs: CrashFS) -> None:                       # the code of a process
        with sparklog.open("/log", "rw", fs=fs) as log: ...

    for crash in every_crash(work):
        with sparklog.open("/log", "rw", fs=crash.fs) as log:    # the next process
            ...                                          # crash.how describes the crash

The work runs once. Before each call that changes the disk, and after the last call, the disk is
copied as several kinds of crashes would leave it. Each copy is a separate machine.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Call


@dataclass(slots=True)
class Crash:
    """A machine after a crash.

    Attributes:
        how: The kind of crash, and the call of the work that it preceded.
        fs: A new process on the machine.
        finished: Whether the work had returned before the crash.

    Examples:
        >>> from sparklog.testing import every_crash
        >>> crashes = list(every_crash(lambda fs: fs.mkdir("/data")))
        >>> {crash.fs.exists("/data") for crash in crashes}
        {False, True}
    """

    how: str
    fs: CrashFS
    finished: bool = False


PossibleCrash = tuple[str, Callable[[], CrashFS]]
"""The kind of a crash, and a function that creates the machine after it."""


def possible_crashes(
    fs: CrashFS, call: Call | None, rng: random.Random, seeds: int
) -> list[PossibleCrash]:
    """Return the crashes that could happen now, just before `call`.

    A kill, also within a write; a power cut after which only synced data remain, another after
    which all data remain, and `seeds` power cuts with a random part (see `sparklog.testing.disk`).
    """
    found: list[PossibleCrash] = [("kill", fs.kill_clone)]
    if call is not None and call.op == "pwrite" and fs.torn_size(call.at, call.size):
        found.append(("torn kill", lambda: fs.kill_clone(call)))
        found.append(("torn write, power cut", lambda: fs.kill_clone(call).crash_clone(rng)))
    found.append(("power cut, strict", lambda: fs.crash_clone(mode="strict")))
    found.append(("power cut, all kept", lambda: fs.crash_clone(mode="all")))
    partly = [(f"power cut, random {n}", lambda: fs.crash_clone(rng)) for n in range(seeds)]
    return [*found, *partly]


def crashes_now(fs: CrashFS, call: Call | None, rng: random.Random, seeds: int) -> Iterator[Crash]:
    """Yield a copy of the machine for each crash that could happen now.

    For use in `CrashFS.on_call`.
    """
    for how, make in possible_crashes(fs, call, rng, seeds):
        if call is None:
            yield Crash(f"{how} after the last call", make(), finished=True)
        else:
            yield Crash(f"{how} before {call}", make())


def every_crash(
    work: Callable[[CrashFS], object],
    *,
    fs: CrashFS | None = None,
    seeds: int = 1,
    seed: int = 0,
) -> Iterator[Crash]:
    """Run a function to the end, then yield a machine after each possible crash.

    Args:
        work: Does its work on the given file system, in its own thread only.
        fs: The initial machine, left as the work leaves it; by default an empty machine.
        seeds: The number of power cuts per call that keep a random part.
        seed: The seed of these parts.

    Raises:
        Exception: The errors of `work`.

    Cost:
        A copy of the disk in memory for each crash, four or more per call that changes the disk.

    Examples:
        >>> from sparklog.testing import every_crash
        >>> def work(fs):
        ...     with sparklog.open("/log", "rw", fs=fs) as log:
        ...         log.create_topic("flights")
        >>> for crash in every_crash(work):
        ...     with sparklog.open("/log", "rw", fs=crash.fs) as log:
        ...         if crash.finished:
        ...             assert "flights" in log.topics(), crash.how
    """
    machine = CrashFS() if fs is None else fs
    rng = random.Random(seed)
    found: list[Crash] = []
    machine.on_call = lambda call: found.extend(crashes_now(machine, call, rng, seeds))
    try:
        work(machine)
    finally:
        machine.on_call = None
    found.extend(crashes_now(machine, None, rng, seeds))
    found.reverse()
    while found:  # frees each machine when the caller is done with it
        yield found.pop()
