"""What a bucket with versioning keeps of objects that were replaced or deleted, told in words."""

from collections.abc import Iterable
from typing import Final, Protocol, runtime_checkable

from sparklog.pluralize import pluralize
from sparklog.tiered.object_store.store import Store

_CLOCKS_MS: Final = 300_000  # how far the store's clock, which dates versions, may be ahead


@runtime_checkable
class KeepsVersions(Protocol):
    """A store that can tell of versions; others have none that anybody could ask for."""

    def older_versions(self, prefix: str, before_ms: int) -> int:
        """Count versions that others took the place of, written before, of objects so named."""


def versions_left(store: Store, prefixes: Iterable[str], before_ms: int) -> list[str]:
    """Say of older versions written before `before_ms` that they may hold what was erased.

    Raises: StorageUnavailableError: it can't be asked. Cost: a request, and of a versioned bucket
    one for each 1,000 versions below the prefixes.
    """
    if not isinstance(store, KeepsVersions):
        return []
    counts = {each: store.older_versions(each, before_ms + _CLOCKS_MS) for each in prefixes}
    return [
        f"{pluralize(count, 'older version')} of objects below {store.url}/{prefix}, which the "
        "bucket keeps (versioning) and which may hold such records: delete them, or have a "
        "lifecycle rule (NoncurrentVersionExpiration) do it; run the same erasure again then"
        for prefix, count in counts.items()
        if count
    ]
