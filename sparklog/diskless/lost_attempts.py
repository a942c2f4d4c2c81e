"""Deletes objects that failed attempts of tasks staged, once their micro-batch is committed.

Spark kills attempts (speculation, lost executors, cancelled jobs), and their objects remain. Their
names contain the label of the micro-batch. After its commit, no other commit of the micro-batch is
accepted, except after a reset of the writer. A reset is a later entry than the commit, so objects
that are staged after it have a higher number in their names.
"""

from collections.abc import Collection
from typing import Final

from sparklog.diskless.names import parse_staged, staged_prefix
from sparklog.diskless.state import DisklessState
from sparklog.tiered.object_store.store import Store

_SLASH: Final = "/"


def delete_retried(store: Store, log_id: str, label: str, kept: Collection[str]) -> int:
    """Delete objects of other attempts at a micro-batch under the plan of its commit.

    Args: label: of the micro-batch. kept: all objects that its commit refers to.
    Returns: the number of deleted objects. Cost: a listing of the micro-batch's objects, and a
        deletion.
    """
    numbers = {name.rpartition(_SLASH)[0] for name in kept}
    listed = [stored.name for each in numbers for stored in store.list(f"{each}/{label}-")]
    deletable = [name for name in listed if name not in kept]
    store.delete(deletable)
    return len(deletable)


def delete_of_earlier_runs(
    store: Store, state: DisklessState, label: str, kept: Collection[str]
) -> int:
    """Delete objects that earlier runs of a query staged for the micro-batch just committed.

    A commit before a reset of the writer may have the same label, so objects of the log are not
    deleted. No object is deleted if these can't be determined without reading extent tables.
    Args: state: after the commit. label, kept: as in `delete_retried`.
    Returns: the number of deleted objects. Cost: a listing of all staged objects, and a deletion.
    """
    numbers = [parse_staged(state.log_id, name) for name in kept]
    newest = max((number for number in numbers if number is not None), default=-1)
    extents = (extent for of_partition in state.kept_extents() for extent in of_partition)
    if newest < 0 or any(extent.pieces and extent.object not in kept for extent in extents):
        return 0
    prefix, live, deletable = staged_prefix(state.log_id), state.live_objects(), list[str]()
    for stored in store.list(prefix, f"{prefix}{max(0, state.floor):020d}"):
        number = parse_staged(state.log_id, stored.name)
        is_labelled = stored.name.rpartition(_SLASH)[2].startswith(f"{label}-")
        if is_labelled and number is not None and number <= newest:
            deletable += [] if stored.name in live or stored.name in kept else [stored.name]
    store.delete(deletable)
    return len(deletable)
