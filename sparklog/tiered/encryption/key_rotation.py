"""Key rotation: the data keys of all copies are wrapped anew under the key ring's current key.

Logs and indexes stay as they are; each manifest whose key is another one is put again. Keep the
old key in the ring until this has run without an error: readers then need the new one only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sparklog.tiered.encryption.envelope import rewrap
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import MANIFEST_BYTES_MAX, Manifest, parse, to_bytes
from sparklog.tiered.layout.object_names import parse_directory, parse_manifest
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.target import open_store

_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True)
class Rotated:
    """How many manifests were wrapped anew, and how many had the current key; and how many `plain`
    copies there are, which no rotation encrypts.
    """

    changed: int
    unchanged: int
    plain: int = 0


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
    changed = plain = gone = 0
    for first in range(0, len(names), _AT_ONCE):
        some = names[first : first + _AT_ONCE]
        for name, raw in zip(some, store.get_many(some, limit=MANIFEST_BYTES_MAX), strict=True):
            if isinstance(raw, FileNotFoundError):
                gone += 1  # deleted since the listing
                continue
            if isinstance(raw, Exception):
                raise raw
            manifest, body = parse(raw, path=f"{store.url}/{name}")
            plain += manifest.encryption is None
            changed += _rewrapped(store, keyring, manifest, body, name)
    return Rotated(changed, len(names) - changed - plain - gone, plain)


def _rewrapped(store: Store, keyring: Keyring, manifest: Manifest, body: bytes, name: str) -> bool:
    wrapped = manifest.encryption
    if wrapped is None or wrapped.key_id == keyring.current:
        return False
    fresh = rewrap(keyring, manifest.segment.id, wrapped)
    store.put(name, to_bytes(replace(manifest, encryption=fresh), body))
    return True


def _is_manifest(name: str) -> bool:
    directory, _, base = name.partition("/")
    return parse_directory(directory) is not None and parse_manifest(base) is not None
