"""The backup repository: blocks named by their contents, and snapshots that name blocks.

    blocks/<2 hex>/<64 hex>     a part of a file, at most BLOCK_BYTES; SHA-256 of its bytes
    points/<name>               a snapshot: which files it has; written last (snapshots.py)
    keys/<id>                   the repository's key, wrapped by the key ring's current one
    running/<id>, pruning/<id>  locks (repository_locks.py)

A block is written once, however many snapshots name it. Where a key ring is given, the repository
gets one random key, and each block a key derived from that and the block's contents: equal blocks
are stored once, under a key that seals nothing else, and neither names nor bytes tell what is in
them.
"""

import hashlib
import hmac
import os
import uuid
from typing import Final

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.storage.checksummed_json import seal, unseal
from sparklog.tiered.encryption.envelope import DataKey, unwrap_key, wrap_key
from sparklog.tiered.keyring import KEY_BYTES, Keyring
from sparklog.tiered.layout.wrapped_key import WrappedKey
from sparklog.tiered.object_store.store import Store

BLOCK_BYTES: Final = 16 << 20
BLOCKS: Final = "blocks/"
KEYS: Final = "keys/"
_CURE: Final = "restore the object from a copy of the bucket"


def as_keyring(given: Keyring | str | None) -> Keyring | None:
    """Return a key ring, read from its file if it is a path."""
    return Keyring.load(given) if isinstance(given, str) else given


class Repository:
    """Blocks below one URL, sealed if it has a key. Threads may share it."""

    def __init__(self, store: Store, key_id: str | None = None, key: bytes = b"") -> None:
        self.store, self.key_id, self._key = store, key_id, key

    @classmethod
    def writing(cls, store: Store, ring: Keyring | None) -> "Repository":
        """Open for new snapshots; makes the key where there is none yet. One or two requests.

        Raises: InvalidRequestError: it is encrypted, and there is no key ring, or another one.
        """
        known = sorted(one.name.removeprefix(KEYS) for one in store.list(KEYS))
        if ring is None:
            if known:
                raise InvalidRequestError(
                    f"the archive at {store.url} is encrypted: give the key ring", path=store.url
                )
            return cls(store)
        if known:
            return cls.reading(store, ring, known[0])
        key_id, key = uuid.uuid4().hex, os.urandom(KEY_BYTES)
        wrapped = wrap_key(ring, key, key_id)
        store.put(KEYS + key_id, seal("key", wrapped.to_dict()))
        return cls(store, key_id, key)

    @classmethod
    def reading(cls, store: Store, ring: Keyring | None, key_id: str | None) -> "Repository":
        """Open for a snapshot that was written under this key. Raises as `writing`."""
        if key_id is None:
            return cls(store)
        if ring is None:
            raise InvalidRequestError(
                f"the archive at {store.url} is encrypted: give the key ring", path=store.url
            )
        path = f"{store.url}/{KEYS}{key_id}"
        try:
            wrapped = unseal("key", store.get(KEYS + key_id), path=path, cure=_CURE)
        except FileNotFoundError:
            raise DataCorruptionError(f"the archive's key is gone; {_CURE}", path=path) from None
        return cls(store, key_id, unwrap_key(ring, key_id, WrappedKey.parse(wrapped)))

    def name(self, digest: bytes) -> str:
        """The object of the block with this SHA-256."""
        text = (self._derived(b"name", digest) if self._key else digest).hex()
        return f"{BLOCKS}{text[:2]}/{text}"

    def stored_size(self, digest: bytes, size: int) -> int:
        """Bytes that a block takes in the store."""
        return self._data_key(digest).stored_size(size) if self._key else size

    def put(self, digest: bytes, data: bytes) -> None:
        """Write a block; the store checks what came."""
        if self._key:
            data = b"".join(self._data_key(digest).seal([data], len(data)))
        self.store.put(self.name(digest), data)

    def get(self, digest: bytes, size: int) -> bytes:
        """Return a block. Raises: DataCorruptionError: it is gone, or not what was written."""
        name = self.name(digest)
        path = f"{self.store.url}/{name}"
        try:
            data = self.store.get(name, limit=self.stored_size(digest, size))
        except FileNotFoundError:
            raise DataCorruptionError(f"the block is gone; {_CURE}", path=path) from None
        if self._key:
            data = self._data_key(digest).open_range(data, 0, size, size, path=path)
        if len(data) != size or hashlib.sha256(data).digest() != digest:
            raise DataCorruptionError(
                f"{len(data)} bytes came that aren't the {size} that were written; {_CURE}",
                path=path,
            )
        return data

    def seal_text(self, name: str, data: bytes) -> bytes:
        """Return the body of a snapshot as it is stored; `name` is what it is bound to."""
        return self._data_key(name.encode()).seal_body(data) if self._key else data

    def open_text(self, name: str, data: bytes, *, path: str) -> bytes:
        """Return what `seal_text` was given. Raises: DataCorruptionError."""
        return self._data_key(name.encode()).open_body(data, path=path) if self._key else data

    def _data_key(self, about: bytes) -> DataKey:
        key = self._derived(b"key", about)
        return DataKey(key, self._derived(b"name", about).hex())

    def _derived(self, purpose: bytes, about: bytes) -> bytes:
        return hmac.new(self._key, purpose + b" " + about, hashlib.sha256).digest()


def rotate(store: Store, ring: Keyring) -> int:
    """Wrap the repository's keys under the ring's current key; returns how many were not.

    Blocks and snapshots stay as they are. Raises: as `Repository.reading`.
    """
    changed = 0
    for one in store.list(KEYS):
        key_id = one.name.removeprefix(KEYS)
        path = f"{store.url}/{one.name}"
        wrapped = WrappedKey.parse(unseal("key", store.get(one.name), path=path, cure=_CURE))
        if wrapped.key_id != ring.current:
            key = unwrap_key(ring, key_id, wrapped)
            store.put(one.name, seal("key", wrap_key(ring, key, key_id).to_dict()))
            changed += 1
    return changed
