"""Finds missing objects of a state by their names and sizes.

`status` uses this check; `verify` reads the bytes. Several objects of a directory are found by a
listing, single objects and ledger entries by their size. The number of requests is bounded.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from sparklog.common import TopicPartition
from sparklog.diskless.extent_tables import block_size
from sparklog.diskless.extents import Extent, Extents
from sparklog.diskless.merge_source import SourceReader
from sparklog.diskless.names import ledger_prefix, staged_prefix
from sparklog.diskless.state import DisklessState, partitions_of
from sparklog.errors import DataCorruptionError
from sparklog.storage.segment_store import SourceChangedError
from sparklog.tiered.object_store.store import Store

REQUESTS_MAX: Final = 256
"""Maximum number of requests per check. Further objects are not examined."""
_LISTED: Final = 3  # from this number of objects on, a directory is listed
_THREADS: Final = 16


class UnreadableExtent(NamedTuple):
    """Records of a partition that cannot be read, because an object is missing or too short."""

    key: TopicPartition
    extent: Extent
    object: str
    why: str


def unreadable_extents(store: Store, state: DisklessState) -> list[UnreadableExtent]:
    """Return the extents with missing or truncated objects.

    Cost: a listing per directory with several objects, a HEAD per other object, two GETs per extent
        in an extent table; REQUESTS_MAX in total.

    Raises:
        StorageUnavailableError: The store does not answer, or refuses the request.
    """
    unreadable, pieces, needed = list[UnreadableExtent](), dict[Extent, Extents](), dict[str, int]()
    reader, tables = SourceReader(store, state.keys, None), REQUESTS_MAX // 4
    for key, extent in _extents(state):
        pieces[extent] = (extent,)
        if extent.pieces and tables > 0:
            tables -= 1
            try:
                pieces[extent] = reader.pieces(extent)
            except SourceChangedError:
                unreadable.append(UnreadableExtent(key, extent, extent.object, "it is missing"))
            except DataCorruptionError as error:
                unreadable.append(UnreadableExtent(key, extent, extent.object, error.reason))
        for piece in pieces[extent]:
            least = _least_size(state, piece)
            needed[piece.object] = max(needed.get(piece.object, 0), least)
    sizes = _known_sizes(store, state.log_id, needed)
    known = {(each.key, each.extent) for each in unreadable}
    for key, extent in _extents(state):
        for piece in pieces[extent]:
            least, size = _least_size(state, piece), sizes.get(piece.object)
            if size is None or size >= least or (key, extent) in known:
                continue
            why = "it is missing" if size < 0 else f"it ends at byte {size}, not {least}"
            unreadable.append(UnreadableExtent(key, extent, piece.object, why))
            break
    return unreadable


def _extents(state: DisklessState) -> Iterator[tuple[TopicPartition, Extent]]:
    for key in partitions_of(state):
        for extent in state.extents.get(key, ()):
            yield key, extent


def _least_size(state: DisklessState, extent: Extent) -> int:
    """Return the size that an object must have so that the extent can be read."""
    if extent.pieces:
        return extent.start + block_size(extent)
    if extent.object in state.keys:  # encrypted: the records' size is not the object's
        return 1
    return extent.start + extent.size


def _known_sizes(store: Store, log_id: str, needed: Mapping[str, int]) -> dict[str, int]:
    """Return {object: size, -1 if it is missing} for the objects within the limit of requests."""
    ledger, staged = ledger_prefix(log_id), staged_prefix(log_id)
    directories: dict[str, list[str]] = defaultdict(list)
    for name in needed:
        parent = f"{name.rpartition('/')[0]}/"
        directories[staged if name.startswith(staged) else parent].append(name)
    sizes, single, left = dict[str, int](), list[str](), REQUESTS_MAX // 2
    for directory, names in directories.items():
        if directory == ledger or len(names) < _LISTED or left <= 0:
            single += names
            continue
        left -= 1
        listed = {stored.name: stored.size for stored in store.list(directory, min(names)[:-1])}
        sizes |= {name: listed.get(name, -1) for name in names}
    # A listing may be outdated, so objects that it lacks are requested individually.
    lacking = [name for name, size in sizes.items() if size < needed[name]]
    newest = sorted(single, reverse=True)
    return sizes | _heads(store, [*lacking, *newest][: REQUESTS_MAX // 4 + left])


def _heads(store: Store, names: Sequence[str]) -> dict[str, int]:
    """Return {object: size, -1 if it is missing}, by a HEAD request for each object.

    Unlike the sizes in a listing, these are never outdated.
    """

    def one(name: str) -> int:
        try:
            return store.size(name)
        except FileNotFoundError:
            return -1

    with ThreadPoolExecutor(_THREADS, "sparklog-heads") as pool:
        return dict(zip(names, pool.map(one, names), strict=True))
