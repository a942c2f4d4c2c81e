"""`prune`: old points of an archive, and the blocks that no point names any more."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sparklog.checkpoint.backup import snapshots
from sparklog.checkpoint.backup.archiving import as_keyring
from sparklog.checkpoint.backup.operation_marks import (
    PRUNING,
    PRUNING_MS,
    RUNNING,
    RUNNING_MS,
    Mark,
)
from sparklog.checkpoint.backup.repository import BLOCKS
from sparklog.checkpoint.backup.snapshots import POINTS, Point
from sparklog.clock import Clock, system_clock
from sparklog.errors import InvalidRequestError
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.target import open_store

_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What went, or would go: points, oldest first, and blocks with their bytes.

    `postponed`: blocks stay for now, since an archiving is under way (or died in the last day).
    """

    points: list[str]
    kept: int
    blocks: int
    bytes: int
    postponed: bool

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON takes them."""
        return asdict(self)


def list_points(url: str, *, storage_options: Mapping[str, Any] | None = None) -> list[Point]:
    """Return the points of the archive at `url`, oldest first. Raises StorageUnavailableError."""
    return snapshots.points(open_store(url, storage_options))


def prune(
    url: str,
    *,
    keep: int | None = None,
    before_ms: int | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    keyring: Keyring | str | None = None,
    clock: Clock = system_clock,
) -> Pruned:
    """Delete old points, then the blocks that none of the others names.

    Args:
        keep: the newest so many points stay. before_ms: only older points go. At least one of
            both; the newest point always stays.
        keyring: of an encrypted archive, for a point doesn't tell its blocks without.
    Raises: InvalidRequestError; DataCorruptionError: a point that stays can't be read, so nobody
        knows its blocks: none was deleted.
    Cost: reads all points that stay; a list request for each 1,000 blocks.
    """
    if (keep is None and before_ms is None) or (keep is not None and keep < 1):
        raise InvalidRequestError("say what may go: keep=N (at least 1), before_ms, or both")
    store = open_store(url, storage_options)
    ring = as_keyring(keyring)
    if dry_run:
        return _plan(store, ring, keep, before_ms)[0]
    with Mark(store, PRUNING, clock) as mark:
        postponed = bool(mark.others(RUNNING, RUNNING_MS))  # before the points are listed
        plan, doomed = _plan(store, ring, keep, before_ms)
        store.delete([POINTS + name for name in plan.points])
        if postponed:
            return replace(plan, blocks=0, bytes=0, postponed=True)
        _delete(store, doomed, mark.began_ms, clock)
    return plan


def _plan(
    store: Store, ring: Keyring | None, keep: int | None, before_ms: int | None
) -> tuple[Pruned, list[str]]:
    """Say what is to go, and which blocks that are."""
    held = snapshots.points(store)
    older = held[: -max(1, keep or 1)]
    gone = {p.name for p in older if before_ms is None or p.time_ms < before_ms}
    stay = [point for point in held if point.name not in gone]
    needed = _needed(store, stay, ring)
    doomed = [one for one in store.list(BLOCKS) if one.name not in needed]
    if not held and not doomed:
        raise snapshots.no_points(store.url)
    plan = Pruned(
        points=[point.name for point in held if point.name in gone],
        kept=len(stay),
        blocks=len(doomed),
        bytes=sum(one.size for one in doomed),
        postponed=False,
    )
    return plan, [one.name for one in doomed]


def _needed(store: Store, stay: list[Point], ring: Keyring | None) -> set[str]:
    """The objects that the points name."""
    names: set[str] = set()
    for point in stay:
        vault, trees = snapshots.read(store, point, ring)
        for tree in trees.values():
            names |= {vault.name(digest) for entry in tree.files for digest in entry.blocks}
    return names


def _delete(store: Store, names: list[str], began_ms: int, clock: Callable[[], int]) -> None:
    """Delete as long as our mark keeps others from archiving; the rest goes another time."""
    for at in range(0, len(names), _AT_ONCE):
        if clock() - began_ms >= PRUNING_MS // 2:
            return
        store.delete(names[at : at + _AT_ONCE])
