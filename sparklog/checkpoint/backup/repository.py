"""The backup repository: files named by their content, and snapshots that reference them.

    files/<2 hex>/<64 hex>   a file; the name is the SHA-256 of its bytes
    points/<name>            a snapshot: its list of files; written last (snapshots.py)
    keys/<id>                the repository's key, wrapped by the keyring's current key
    blocks/<2 hex>/<64 hex>  part of a file, in repositories of versions up to 02014a42; only read

A file is stored once, however many snapshots reference it. With a keyring, the repository has a
random key, and each file a key derived from that and the file's content: equal files are stored
once, under a key that seals no other file, and neither names nor bytes reveal the content. No
object is ever deleted or changed here: writing a file again writes the same bytes. The protocol is
in sparklog/checkpoint/log_backed/PROTOCOL.md.
"""

import hashlib
import hmac
import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import Buffer
from sparklog.storage.stored_json import seal, unseal
from sparklog.tiered.encryption.envelope import DataKey, unwrap_key, wrap_key
from sparklog.tiered.keyring import KEY_BYTES, Keyring
from sparklog.tiered.layout.manifest import WrappedKey
from sparklog.tiered.object_store.store import Store

PIECE_BYTES: Final = 16 << 20
"""Files are read, uploaded and checked in pieces of this size."""
FILES: Final = "files/"
BLOCKS: Final = "blocks/"
KEYS: Final = "keys/"
_CURE: Final = "restore the object from a copy of the bucket"


def as_keyring(given: Keyring | str | None) -> Keyring | None:
    """Return the keyring, which is loaded if `given` is a path."""
    return Keyring.load(given) if isinstance(given, str) else given


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes [start, end) of an object, and their checksums.

    Attributes:
        digest: The SHA-256 of these bytes.
        content: The SHA-256 of the entire object.
        size: The size of the entire object.
    """

    digest: bytes
    content: bytes
    size: int
    start: int
    end: int
    prefix: str = FILES


class Repository:
    """The objects below a URL, encrypted if the repository has a key. Thread-safe."""

    def __init__(self, store: Store, key_id: str | None = None, key: bytes = b"") -> None:
        self.store, self.key_id, self._key = store, key_id, key

    @classmethod
    def writing(cls, store: Store, ring: Keyring | None) -> "Repository":
        """Open a repository for new snapshots; create the key if needed.

        Cost: one or two requests.

        Raises:
            InvalidRequestError: The repository is encrypted, and the keyring is missing or wrong.
        """
        known = sorted(one.name.removeprefix(KEYS) for one in store.list(KEYS))
        if ring is None:
            if known:
                raise InvalidRequestError(
                    f"the archive at {store.url} is encrypted: pass the keyring (option --keyring, "
                    "keyring=)",
                    path=store.url,
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
        """Open a repository for a snapshot that was written with this key.

        Raises the errors of `writing`.
        """
        if key_id is None:
            return cls(store)
        if ring is None:
            raise InvalidRequestError(
                f"the archive at {store.url} is encrypted: pass the keyring (option --keyring, "
                "keyring=)",
                path=store.url,
            )
        path = f"{store.url}/{KEYS}{key_id}"
        try:
            wrapped = unseal("key", store.get(KEYS + key_id), path=path, cure=_CURE)
        except FileNotFoundError:
            raise DataCorruptionError(
                f"the key of the archive is missing; {_CURE}", path=path
            ) from None
        return cls(store, key_id, unwrap_key(ring, key_id, WrappedKey.parse(wrapped)))

    def name(self, content: bytes, prefix: str = FILES) -> str:
        """Return the name of the object with this SHA-256."""
        text = (self._derived(b"name", content) if self._key else content).hex()
        return f"{prefix}{text[:2]}/{text}"

    def stored_size(self, content: bytes, size: int) -> int:
        """Return the size of a file in the store."""
        return self._data_key(content).stored_size(size) if self._key else size

    def put(self, content: bytes, pieces: Iterable[Buffer], size: int) -> None:
        """Write a file. The caller guarantees that `pieces` have this SHA-256."""
        if self._key:
            pieces = self._data_key(content).seal(pieces, size)
        self.store.put_stream(self.name(content), pieces, self.stored_size(content, size))

    def get(self, piece: Piece) -> bytes:
        """Return the bytes of a piece.

        Raises:
            DataCorruptionError: The object is missing, or has other bytes than were written.
        """
        name = self.name(piece.content, piece.prefix)
        path = f"{self.store.url}/{name}"
        start, end, size = piece.start, piece.end, piece.size
        data_key = self._data_key(piece.content) if self._key else None
        try:
            if data_key is None:
                data = self.store.get(name, start, end)
            else:
                sealed = self.store.get(name, *data_key.stored_range(start, end, size))
                data = data_key.open_range(sealed, start, end, size, path=path)
        except FileNotFoundError:
            raise DataCorruptionError(f"the object is missing; {_CURE}", path=path) from None
        if hashlib.sha256(data).digest() != piece.digest:
            raise DataCorruptionError(
                f"bytes [{start}, {end}) differ from their SHA-256; {_CURE}", path=path
            )
        return data

    def seal_text(self, name: str, data: bytes) -> bytes:
        """Return the stored form of a snapshot's body, which is bound to `name`."""
        return self._data_key(name.encode()).seal_body(data) if self._key else data

    def open_text(self, name: str, data: bytes, *, path: str) -> bytes:
        """Return the data that `seal_text` stored.

        Raises:
            DataCorruptionError: The text is damaged, or was stored under another name.
        """
        return self._data_key(name.encode()).open_body(data, path=path) if self._key else data

    def _data_key(self, about: bytes) -> DataKey:
        key = self._derived(b"key", about)
        return DataKey(key, self._derived(b"name", about).hex())

    def _derived(self, purpose: bytes, about: bytes) -> bytes:
        return hmac.new(self._key, purpose + b" " + about, hashlib.sha256).digest()


def rotate(store: Store, ring: Keyring) -> int:
    """Wrap the repository's keys with the keyring's current key. Return how many were changed.

    Files and snapshots stay unchanged. Raises the errors of `Repository.reading`.
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
