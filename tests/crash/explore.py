"""Cut a call at every mutating file-system call in it, and judge every disk that could result."""

from __future__ import annotations

import contextlib
import hashlib
import random
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from sparklog.testing.crashfs import CrashFS
from sparklog.testing.disk import DirNode, FileNode, Node
from sparklog.testing.faults import Call, SimulatedKill
from tests.crash.harness import Planned, World, judge, look, open_log


@dataclass(slots=True)
class Image:
    """A machine after a crash, and how it came about."""

    how: str
    fs: CrashFS
    finished: bool = False


@dataclass(slots=True)
class Tally:
    """What was covered."""

    cuts: int = 0
    images: int = 0
    judged: int = 0
    looks: int = 0
    again: int = 0
    ops: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"{self.cuts} cut points, {self.images} crashed disks, {self.judged} different ones "
            f"recovered, {self.again} of them after a crash in recovery, {self.looks} reads"
        )


def digest(fs: CrashFS) -> bytes:
    """Return a hash of all names and contents, and of the boot."""
    total = hashlib.blake2b(fs.boot_id().encode(), digest_size=16)

    def add(path: str, node: Node) -> None:
        if isinstance(node, FileNode):
            total.update(f"{path} {len(node.data)} ".encode())
            total.update(node.data)
            return
        total.update(f"{path}/ ".encode())
        for name in sorted(node.entries):
            add(f"{path}/{name}", node.entries[name])

    root: DirNode = fs.disk.root
    add("", root)
    return total.digest()


def crashes(fs: CrashFS, call: Call | None, rng: random.Random, seeds: int) -> Iterator[Image]:
    """Yield the machines that a crash right now may leave; `call` is about to be done."""
    yield Image("kill", fs.kill_clone())
    if call is not None and call.op == "pwrite" and fs.torn_size(call.at, call.size):
        torn = fs.kill_clone(call)
        yield Image("torn kill", torn)
        yield Image("torn write, power cut", torn.crash_clone(rng))
    yield Image("power cut, strict", fs.crash_clone(mode="strict"))
    yield Image("power cut, all kept", fs.crash_clone(mode="all"))
    for number in range(seeds):
        yield Image(f"power cut, random {number}", fs.crash_clone(rng))


def explore(
    world: World,
    planned: Planned,
    *,
    seeds: int = 1,
    tally: Tally | None = None,
    readers: bool = True,
    deep: int = 0,
) -> Tally:
    """Run `planned` once, crash it everywhere, judge each different outcome.

    With `deep`, recovery from each `deep`th image is crashed at every call, too; otherwise, from
    about a tenth of them, at one call. The world goes on behind the finished operation.
    """
    tally = tally if tally is not None else Tally()
    rng = random.Random(zlib.crc32(planned.name.encode()))
    images: list[Image] = []
    allowed = [world.model.view(), planned.after.view()]

    def cut(call: Call) -> None:
        tally.cuts += 1
        for image in crashes(world.fs, call, rng, seeds):
            image.how = f"{image.how} before {call}"
            images.append(image)
        if readers:
            tally.looks += 1
            look(world.fs, world, allowed)

    before, views = world.model, list(world.views)
    world.fs.on_call = cut
    world.run(planned)
    world.fs.on_call = None
    tally.cuts += 1
    for image in crashes(world.fs, None, rng, seeds):
        images.append(Image(f"{image.how} after the last call", image.fs, finished=True))
    (after, world.model), (all_views, world.views) = (world.model, before), (world.views, views)
    tally.images += len(images)
    seen: set[tuple[bytes, bool]] = set()
    for image in images:
        key = digest(image.fs), image.finished
        if key in seen:
            continue
        seen.add(key)
        tally.judged += 1
        _judge_image(
            image,
            world,
            planned,
            tally,
            rng,
            deep=deep > 0 and tally.judged % deep == 0,
            readers=readers,
        )
    world.model, world.views = after, all_views
    return tally


def _judge_image(
    image: Image,
    world: World,
    planned: Planned,
    tally: Tally,
    rng: random.Random,
    *,
    deep: bool,
    readers: bool,
) -> None:
    try:
        if readers and rng.random() < 0.5:  # before anybody has recovered it
            tally.looks += 1
            after = [planned.after.view()]
            known = after if image.finished else [world.model.view(), *after]
            look(image.fs, world, known if "kill" in image.how else world.views + after)
        if deep:
            number = 1
            while recrash(image, world, planned, number, rng):
                number += 1
            tally.again += number - 1
        elif rng.random() < 0.1:
            tally.again += recrash(image, world, planned, rng.randint(1, 30), rng)
        go_on = rng.random() < 0.3
        judge(image.fs, world, planned, finished=image.finished, go_on=go_on)
    except Exception as error:
        error.add_note(f"history: {world.history[:-1]}, then {planned.name}")
        error.add_note(f"crash: {image.how}")
        raise


def recrash(image: Image, world: World, planned: Planned, number: int, rng: random.Random) -> bool:
    """Crash the recovery of `image` at its `number`th call, then judge; False if it has fewer."""
    fs = image.fs.kill_clone()
    found: list[Image] = []

    def cut(call: Call) -> None:
        if call.number == number:
            found.extend(crashes(fs, call, rng, 1))
            fs.kill()
            fs.check_alive()

    fs.on_call = cut
    with contextlib.suppress(SimulatedKill):
        open_log(fs, world.clock)
    if not found:
        return False
    for again in rng.sample(found, min(2, len(found))):
        try:
            judge(again.fs, world, planned, finished=image.finished, go_on=False)
        except Exception as error:
            error.add_note(f"recovery crashed, too: {again.how}")
            raise
    return True
