"""What a log knows of its topics beside their records, held against the model.

Topic ids, deleted topics that can be given back, the log dir of each partition, erasures that were
begun; and which directories there are.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

import sparklog
from sparklog.format.names import parse_future_dir, parse_partition_dir
from sparklog.log.topic_names import INTERNAL
from sparklog.logdir.erasures_file import unfinished_erasures
from sparklog.logdir.home import commits_of
from sparklog.storage.upkeep import ErasureRequest
from sparklog.testing.crashfs import CrashFS
from tests.crash.model import KEYS, Deleted, Model

if TYPE_CHECKING:
    from tests.crash.harness import World

STEP_MS = 10  # that an operation takes
DELAY_MS = 60_000  # file.delete.delay.ms, if nobody set it

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def check(log: sparklog.Log, world: World, model: Model, known: Sequence[Model]) -> Model:
    """Return `model`, whose records are those of the log, with what else the log knows by now.

    `known`: every state that the log may be in; those of other records don't count.
    """
    view = model.view()
    known = [one for one in known if one.view() == view] or [model]
    model = model.copy()
    _check_ids(log, world, model)
    model.deleted = _deleted(log, world, known)
    for (topic, partition), part in model.parts.items():
        found = os.path.dirname(log.topic(topic).dirs[partition])
        places = {one.parts[topic, partition].place for one in known}
        if "" in places:  # nobody has looked yet
            places |= set(world.path.split(","))
        assert found in places, f"{topic}-{partition} is in {found}, not {places}"
        part.place = found
    model.begun = _begun(world, log, model, known)
    return model


def _check_ids(log: sparklog.Log, world: World, model: Model) -> None:
    """A topic has the id of its life, and no other one has."""
    for topic in model.topics():
        found, life = log.topic(topic).id, model.lives[topic]
        assert world.ids.setdefault(life, found) == found, f"{topic} has another id"
    assert len(set(world.ids.values())) == len(world.ids)


def _deleted(log: sparklog.Log, world: World, known: Sequence[Model]) -> dict[int, Deleted]:
    """What can be given back: all whose time isn't over, and nothing that was given up."""
    found = {one.id for one in log.deleted_topics()}
    for model in known:
        held = {world.ids[life]: life for life in model.deleted}
        due = {name for name, life in held.items() if is_due(world, model.deleted[life])}
        if held.keys() - due <= found <= held.keys():
            return {held[name]: model.deleted[held[name]] for name in sorted(found)}
    raise AssertionError(f"{found} can be given back, wanted {[one.deleted for one in known]}")


def is_due(world: World, deleted: Deleted) -> bool:
    """Tell whether a deleted topic may go by itself, now or in the next operation."""
    delay_ms = int(world.config.get("file.delete.delay.ms", DELAY_MS))
    return world.clock() + STEP_MS >= deleted.at_ms + delay_ms


def _begun(
    world: World, log: sparklog.Log, model: Model, known: Sequence[Model]
) -> frozenset[tuple[int, bytes]]:
    """The erasures that were begun and aren't complete."""
    home = world.path.partition(",")[0]
    there = {(one.topic_id, one.request) for one in unfinished_erasures(commits_of(log).fs, home)}
    found = {
        (life, key)
        for topic, life in model.lives.items()
        for key in KEYS
        if (world.ids[life], ErasureRequest(topic=topic, keys=[key]).name) in there
    }
    live = set(model.lives.values())
    wanted = [{each for each in one.begun if each[0] in live} for one in known]
    assert found in wanted, f"erasures of {found} are begun, not of {wanted}"
    return frozenset(found | {each for each in model.begun if each[0] not in live})


def check_directories(log: sparklog.Log, fs: CrashFS, log_dirs: str) -> None:
    """Each partition has one directory, and no move has left a copy.

    Right after somebody has opened the log.
    """
    found, copies = [], []
    for directory in log_dirs.split(","):
        for name in fs.listdir(directory):
            live = parse_partition_dir(name)
            path = f"{directory}/{name}"
            if live is not None and live.topic not in INTERNAL and fs.is_dir(path):
                found.append(path)
            if parse_future_dir(name) is not None:
                copies.append(path)
    wanted = [place for topic in log.topics().values() for place in topic.dirs.values()]
    assert sorted(found) == sorted(wanted), f"{found} are there, not {wanted}"
    assert not copies
