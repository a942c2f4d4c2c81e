"""Key rotation: wraps the data keys of all copies by the key ring's current key.

Logs and indexes don't change; each manifest with another key is written again. Keep the old key in
the ring until a rotation has finished without an error; readers then need only the new key.
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
    """The result of a key rotation.

    Attributes:
        changed: The number of manifests whose data key was wrapped by the current key.
        unchanged: The number of manifests that had the current key already.
        plain: The number of unencrypted copies, which a rotation does not encrypt.
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
    """Wrap the data keys of all copies below `url` by `keyring`'s current key.

    Can run beside a service and readers. After an interruption call it again; it continues.
    Cost: a listing; a request per manifest, and another per manifest that changes.

    Raises:
        InvalidRequestError: A key is missing in the ring; the copy is unchanged.
        DataCorruptionError: A manifest is damaged.
        StorageUnavailableError: The bucket can't be read or written.
    """
    store = store or open_store(url, storage_options)
    names = [stored.name for stored in store.list() if _is_manifest(stored.name)]
    changed = plain = deleted = 0
    for first in range(0, len(names), _AT_ONCE):
        batch = names[first : first + _AT_ONCE]
        for name, raw in zip(batch, store.get_many(batch, limit=MANIFEST_BYTES_MAX), strict=True):
            if isinstance(raw, FileNotFoundError):
                deleted += 1  # deleted since the listing
                continue
            if isinstance(raw, Exception):
                raise raw
            manifest, body = parse(raw, path=f"{store.url}/{name}")
            plain += manifest.encryption is None
            changed += _rewrapped(store, keyring, manifest, body, name)
    return Rotated(changed, len(names) - changed - plain - deleted, plain)


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
