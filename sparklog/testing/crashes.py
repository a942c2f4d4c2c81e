"""Every crash that a piece of work can meet: `kill -9` and power cuts at each of its effects.

    def work(fs: CrashFS) -> None:                       # what a process does
        with sparklog.open("/log", "rw", fs=fs) as log: ...

    for crash in every_crash(work):
        with sparklog.open("/log", "rw", fs=crash.fs) as log:    # what the next one finds
            ...                                          # crash.how says what happened

The work runs once. Before each of its calls that change the disk, and after the last, the disk is
copied as several crashes would leave it, and each copy is a machine of its own to go on with.
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
        how: what happened, and before which call of the work.
        fs: a new process on the machine that is left.
        finished: the work had returned before.
    """

    how: str
    fs: CrashFS
    finished: bool = False


PossibleCrash = tuple[str, Callable[[], CrashFS]]
"""How a machine crashes, and what makes the machine that is then found."""


def possible_crashes(
    fs: CrashFS, call: Call | None, rng: random.Random, seeds: int
) -> list[PossibleCrash]:
    """Return the crashes that could happen right now; `call` is about to be done.

    A kill, also within a write; a power cut that keeps nothing but what was synced, one that keeps
    all, and `seeds` that keep any part (see `sparklog.testing.disk`).
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
    """Yield the machines that a crash right now may leave; for use in `CrashFS.on_call`."""
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
    """Run `work` to its end, then yield a machine for each crash that it could have met.

    Args:
        work: does what is tested on the file system that it is given, in its own thread alone.
        fs: where to begin, left as the work leaves it; by default an empty machine.
        seeds: power cuts that keep a random part, for each call; `seed` makes them others.
    Raises: what `work` raises.
    Cost: keeps a copy of the disk for each crash, four or more a call that changes something.
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
    while found:  # each is freed when the caller is done with it
        yield found.pop()
