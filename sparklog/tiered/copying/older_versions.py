"""Reports older object versions that a bucket with versioning retains."""

from collections.abc import Iterable
from typing import Final, Protocol, runtime_checkable

from sparklog.pluralize import pluralize
from sparklog.tiered.object_store.store import Store

_CLOCKS_MS: Final = 300_000  # how far the store's clock, which dates versions, may be ahead


@runtime_checkable
class KeepsVersions(Protocol):
    """A store that can count older object versions; other stores can't."""

    def older_versions(self, prefix: str, before_ms: int) -> int:
        """Count replaced versions, written before a time, of objects with this prefix."""


def versions_left(store: Store, prefixes: Iterable[str], before_ms: int) -> list[str]:
    """Return messages about versions older than `before_ms` that may contain erased records.

    Raises: StorageUnavailableError: versions can't be counted. Cost: a request; in a versioned
        bucket a request per 1,000 versions below the prefixes.
    """
    if not isinstance(store, KeepsVersions):
        return []
    counts = {each: store.older_versions(each, before_ms + _CLOCKS_MS) for each in prefixes}
    return [
        f"{pluralize(count, 'older version')} of objects below {store.url}/{prefix}, which the "
        "bucket retains (versioning) and which may contain such records: delete them, or have a "
        "lifecycle rule (NoncurrentVersionExpiration) do it; run the same erasure again then"
        for prefix, count in counts.items()
        if count
    ]
