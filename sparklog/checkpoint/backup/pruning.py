"""`prune`: old snapshots of a backup repository, and the blocks that no snapshot names any more."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sparklog.checkpoint.backup import snapshots
from sparklog.checkpoint.backup.repository import BLOCKS, as_keyring
from sparklog.checkpoint.backup.repository_locks import (
    ARCHIVING,
    ARCHIVING_STALE_MS,
    PRUNING,
    PRUNING_STALE_MS,
    RepositoryLock,
)
from sparklog.checkpoint.backup.snapshots import SNAPSHOTS, Snapshot
from sparklog.clock import Clock, system_clock
from sparklog.errors import InvalidRequestError
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.target import open_store

_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was deleted, or would be: snapshots (`points`), oldest first, and blocks.

    `postponed`: blocks stay for now, since an archiving is under way (or died within a day).
    """

    points: list[str]
    kept: int
    blocks: int
    bytes: int
    postponed: bool

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON takes them."""
        return asdict(self)


def list_points(url: str, *, storage_options: Mapping[str, Any] | None = None) -> list[Snapshot]:
    """List the snapshots at `url`, oldest first. Raises StorageUnavailableError."""
    return snapshots.list_snapshots(open_store(url, storage_options))


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
    """Delete old snapshots, then the blocks that none of the others names.

    Args:
        keep: so many of the newest snapshots stay. before_ms: only older ones go. Give at least
            one of both; the newest snapshot always stays.
        keyring: of an encrypted repository, where a snapshot doesn't tell its blocks without.
    Raises: InvalidRequestError; DataCorruptionError: a snapshot that stays can't be read, so that
        its blocks aren't known: nothing was deleted.
    Cost: reads all snapshots that stay; a list request for each 1,000 blocks.
    """
    if (keep is None and before_ms is None) or (keep is not None and keep < 1):
        raise InvalidRequestError("say what may go: keep=N (at least 1), before_ms, or both")
    store = open_store(url, storage_options)
    ring = as_keyring(keyring)
    if dry_run:
        return _plan(store, ring, keep, before_ms)[0]
    with RepositoryLock(store, PRUNING, clock) as lock:
        postponed = bool(
            lock.others(ARCHIVING, ARCHIVING_STALE_MS)
        )  # before the snapshots are listed
        plan, doomed = _plan(store, ring, keep, before_ms)
        store.delete([SNAPSHOTS + name for name in plan.points])
        if postponed:
            return replace(plan, blocks=0, bytes=0, postponed=True)
        _delete(store, doomed, lock.began_ms, clock)
    return plan


def _plan(
    store: Store, ring: Keyring | None, keep: int | None, before_ms: int | None
) -> tuple[Pruned, list[str]]:
    """Choose what goes: (what is reported, the names of the blocks)."""
    held = snapshots.list_snapshots(store)
    older = held[: -max(1, keep or 1)]
    gone = {p.name for p in older if before_ms is None or p.time_ms < before_ms}
    stay = [snapshot for snapshot in held if snapshot.name not in gone]
    needed = _needed(store, stay, ring)
    doomed = [one for one in store.list(BLOCKS) if one.name not in needed]
    if not held and not doomed:
        raise snapshots.no_snapshots(store.url)
    plan = Pruned(
        points=[snapshot.name for snapshot in held if snapshot.name in gone],
        kept=len(stay),
        blocks=len(doomed),
        bytes=sum(one.size for one in doomed),
        postponed=False,
    )
    return plan, [one.name for one in doomed]


def _needed(store: Store, stay: list[Snapshot], ring: Keyring | None) -> set[str]:
    """The objects of all blocks that these snapshots name."""
    names: set[str] = set()
    for snapshot in stay:
        repository, trees = snapshots.read(store, snapshot, ring)
        for tree in trees.values():
            names |= {repository.name(digest) for entry in tree.files for digest in entry.blocks}
    return names


def _delete(store: Store, names: list[str], began_ms: int, clock: Callable[[], int]) -> None:
    """Delete as long as our lock keeps others from archiving; the rest goes another time."""
    for at in range(0, len(names), _AT_ONCE):
        if clock() - began_ms >= PRUNING_STALE_MS // 2:
            return
        store.delete(names[at : at + _AT_ONCE])
