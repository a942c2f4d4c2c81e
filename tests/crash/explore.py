"""Cut a call at every mutating file-system call in it, and judge every disk that could result."""

from __future__ import annotations

import hashlib
import random
import zlib
from collections import Counter
from dataclasses import dataclass, field

from sparklog.testing.crashes import Crash, crashes_now, possible_crashes
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.disk import DirNode, FileNode, Node
from sparklog.testing.faults import Call
from tests.crash.harness import Planned, World, judge, look, open_log, quick

Seen = set[tuple[bytes, bool]]
"""Machines that were judged: digest, and whether the operation had finished."""


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


@quick()
def explore(
    world: World,
    planned: Planned,
    *,
    seeds: int = 1,
    tally: Tally | None = None,
    readers: bool = True,
    deep: int = 0,
    every: int = 1,
) -> Tally:
    """Run `planned` once, crash it everywhere, judge each different outcome.

    With `deep`, recovery from each `deep`th image is crashed at every call, too; otherwise, from
    about a tenth of them, at one call. With `every`, each `every`th outcome is judged. The world
    goes on behind the finished operation.
    """
    tally = tally if tally is not None else Tally()
    rng = random.Random(zlib.crc32(planned.name.encode()))
    images: list[Crash] = []
    looked: set[bytes] = set()
    allowed = [world.model.view(), planned.after.view()]

    def cut(call: Call) -> None:
        tally.cuts += 1
        images.extend(crashes_now(world.fs, call, rng, seeds))
        if readers and (key := digest(world.fs)) not in looked:
            looked.add(key)
            tally.looks += 1
            look(world.fs, world, allowed)

    before, views = world.model, list(world.views)
    world.fs.on_call = cut
    world.run(planned)
    world.fs.on_call = None
    tally.cuts += 1
    images.extend(crashes_now(world.fs, None, rng, seeds))
    (after, world.model), (all_views, world.views) = (world.model, before), (world.views, views)
    tally.images += len(images)
    seen: Seen = set()
    again: Seen = set()  # after a crash in recovery
    for image in images:
        key = digest(image.fs), image.finished
        if key in seen:
            continue
        seen.add(key)
        if len(seen) % every:
            continue
        tally.judged += 1
        _judge_image(
            image,
            world,
            planned,
            tally,
            rng,
            (seen, again),
            deep=deep > 0 and tally.judged % deep == 0,
            readers=readers,
        )
    world.model, world.views = after, all_views
    return tally


def _judge_image(
    image: Crash,
    world: World,
    planned: Planned,
    tally: Tally,
    rng: random.Random,
    seen: tuple[Seen, Seen],
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
            tally.again += recrash(image, world, planned, rng, seen)
        elif rng.random() < 0.1:
            tally.again += recrash(image, world, planned, rng, seen, only=rng.randint(1, 30))
        go_on = rng.random() < 0.3
        judge(image.fs, world, planned, finished=image.finished, go_on=go_on)
    except Exception as error:
        error.add_note(f"history: {world.history[:-1]}, then {planned.name}")
        error.add_note(f"crash: {image.how}")
        raise


def recrash(
    image: Crash,
    world: World,
    planned: Planned,
    rng: random.Random,
    seen: tuple[Seen, Seen],
    *,
    only: int | None = None,
) -> int:
    """Crash the recovery of `image` in two ways at each call (or at one), judge what is new.

    Returns how many crashes were judged.
    """
    fs = image.fs.kill_clone()
    found: list[Crash] = []

    def cut(call: Call) -> None:
        if only in (None, call.number):
            for how, make in rng.sample(possible_crashes(fs, call, rng, 1), 2):
                found.append(Crash(f"{how} before {call}", make(), image.finished))

    fs.on_call = cut
    open_log(fs, world.clock, path=world.path)
    judged = 0
    for again in found:
        key = digest(again.fs), again.finished
        if key in seen[0] or key in seen[1]:
            continue
        seen[1].add(key)
        judged += 1
        try:
            judge(again.fs, world, planned, finished=image.finished, go_on=False)
        except Exception as error:
            error.add_note(f"recovery crashed, too: {again.how}")
            raise
    return judged
