"""Objects that no metadata knows, and metadata whose objects are gone. Finds; others act.

Only below prefixes whose topic id this log has or had: another log may share the bucket. Lists
may lag behind, so an object counts as left over only when it is old, and as lost only when asking
for it says so.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.tiered.catalog import Catalog, Key
from sparklog.tiered.layout import Directory, parse_log, parse_manifest
from sparklog.tiered.manifest import log_object, manifest_object
from sparklog.tiered.segments import RemoteSegment, SegmentState
from sparklog.tiered.store import Store, StoredObject

GRACE_MS: Final = 3_600_000
BURIED_MS: Final = 7 * 24 * 3_600_000  # for so long leftovers of a deleted topic are looked for


@dataclass(slots=True)
class Swept:
    """`orphans`: objects that belong to no copy. `lost`: copies with an object missing."""

    orphans: list[StoredObject] = field(default_factory=list)
    lost: list[RemoteSegment] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Bytes of the orphans."""
        return sum(o.size for o in self.orphans)


def prefixes(catalog: Catalog, topics: Mapping[Key, str], *, now_ms: int) -> dict[Key, Directory]:
    """Return where this log's objects may lie.

    Args: topics: {(topic id, partition): topic} of what is tiered now.
    """
    names = dict(topics)
    for key, (topic, since_ms) in catalog.buried.items():
        if now_ms - since_ms <= BURIED_MS:
            names.setdefault(key, topic)
    names |= {key: catalog.all(key)[0].topic for key in list(catalog.keys())}
    return {key: Directory(topic, key[1], key[0]) for key, topic in names.items()}


def look(
    store: Store,
    catalog: Catalog,
    where: Iterable[tuple[Key, Directory]],
    *,
    now_ms: int,
    grace_ms: int = GRACE_MS,
) -> Swept:
    """List prefixes and compare. Changes nothing.

    Cost: one list request for each prefix and 1,000 objects; two more for each copy that a list
    doesn't show.
    """
    found = Swept()
    for key, directory in where:
        listed = store.list(directory.prefix)
        known = {s.id: s for s in catalog.all(key)}
        names = {o.name for o in listed}
        for one in listed:
            if now_ms - one.time_ms >= grace_ms and _is_left_over(one, directory, known):
                found.orphans.append(one)
        for segment in catalog.all(key):
            wanted = {manifest_object(segment), log_object(segment)}
            finished = segment.state is SegmentState.COPY_FINISHED
            if finished and not wanted <= names and is_lost(store, segment):
                found.lost.append(segment)
    return found


def _is_left_over(
    one: StoredObject, directory: Directory, known: Mapping[str, RemoteSegment]
) -> bool:
    """Tell whether an object has a name of ours and belongs to no copy that is known."""
    name = one.name.removeprefix(directory.prefix)
    log, manifest = parse_log(name), parse_manifest(name)
    segment_id = log[1] if log is not None else manifest.id if manifest is not None else None
    if segment_id is None:
        return False  # somebody else's
    segment = known.get(segment_id)
    return segment is None or one.name not in (log_object(segment), manifest_object(segment))


def is_lost(store: Store, segment: RemoteSegment) -> bool:
    """Tell whether one of a copy's objects isn't there, by asking for a byte of each.

    Raises StorageUnavailableError: nobody can tell.
    """
    for name in (manifest_object(segment), log_object(segment)):
        try:
            store.get(name, 0, 1)
        except FileNotFoundError:
            return True
    return False


def remove(store: Store, orphans: Iterable[StoredObject]) -> None:
    """Delete what is left over, manifests first."""
    names = sorted((o.name for o in orphans), key=lambda n: not n.endswith(".manifest"))
    for first in range(0, len(names), 1000):
        with contextlib.suppress(FileNotFoundError):
            store.delete(names[first : first + 1000])
