"""Key rotation: the data keys of all copies are wrapped anew under the key ring's current key.

Logs and indexes stay as they are; each manifest whose key is another one is put again. Keep the
old key in the ring until this has run without an error: readers then need the new one only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sparklog.tiered.encryption import rewrap
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout import parse_directory, parse_manifest
from sparklog.tiered.manifest import parse, to_bytes
from sparklog.tiered.store import Store
from sparklog.tiered.target import open_store

_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True)
class Rotated:
    """How many manifests were wrapped anew, and how many had the current key or none."""

    changed: int
    unchanged: int


def rotate(
    url: str,
    keyring: Keyring,
    *,
    storage_options: Mapping[str, Any] | None = None,
    store: Store | None = None,
) -> Rotated:
    """Wrap the data keys of all copies below `url` under `keyring`'s current key.

    Works beside a running service and readers; run again, it goes on where it was broken off.
    Raises: InvalidRequestError: the ring lacks a key that is in use; nothing of that copy was
        changed. DataCorruptionError: a manifest is damaged. StorageUnavailableError.
    Cost: a listing; a request for each manifest, and one more for each that changes.
    """
    store = store or open_store(url, storage_options)
    names = [one.name for one in store.list() if _is_manifest(one.name)]
    changed = 0
    for first in range(0, len(names), _AT_ONCE):
        some = names[first : first + _AT_ONCE]
        for name, raw in zip(some, store.get_many(some), strict=True):
            if isinstance(raw, FileNotFoundError):
                continue  # deleted since the listing
            if isinstance(raw, Exception):
                raise raw
            changed += _rewrapped(store, keyring, name, raw)
    return Rotated(changed, len(names) - changed)


def _rewrapped(store: Store, keyring: Keyring, name: str, raw: bytes) -> bool:
    manifest, body = parse(raw, path=f"{store.url}/{name}")
    wrapped = manifest.encryption
    if wrapped is None or wrapped.get("key_id") == keyring.current:
        return False
    fresh = rewrap(keyring, manifest.segment.id, wrapped)
    store.put(name, to_bytes(replace(manifest, encryption=fresh), body))
    return True


def _is_manifest(name: str) -> bool:
    directory, _, base = name.partition("/")
    return parse_directory(directory) is not None and parse_manifest(base) is not None
