"""Envelope encryption of segments: each has its own data key, wrapped by a master key.

Data are encrypted with AES-256-GCM in chunks of equal size, so that ranges can be read:

    stored = chunk 0 | tag (16) | chunk 1 | tag | ... | last chunk, maybe shorter | tag

A chunk's nonce is its number. Its tag covers segment id, chunk number and whether it is the last,
so that chunks can't be swapped, taken from another segment, or cut off unnoticed. A nonce is never
reused with other bytes under the same key: each upload needs a new data key, which encrypts a
single file. The master key wraps only the data key (`wrapped` in the manifest); rotation wraps it
again.
Source: the STREAM construction (Hoang et al., 2015); NIST SP 800-38D.
"""

import base64
import binascii
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from sparklog.errors import DataCorruptionError, InvalidRequestError, UnsupportedVersionError
from sparklog.extras import needed
from sparklog.fs import Buffer
from sparklog.tiered.keyring import KEY_BYTES, Keyring
from sparklog.tiered.layout.manifest import WrappedKey

CHUNK_BYTES: Final = 64 << 10
TAG_BYTES: Final = 16
SCHEME: Final = "AES-256-GCM/chunks/1"
_NONCE_BYTES: Final = 12
_BODY: Final = b"\x01"  # first byte of a manifest body's nonce; chunks have 0 there


class DataKey:
    """Encrypts and decrypts a copy of a segment. Create it by `new_data_key` or `open_data_key`.

    Thread-safe.
    """

    def __init__(self, key: bytes, segment_id: str, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.segment_id, self.chunk_bytes = segment_id, chunk_bytes
        self._seal = _aes_gcm(key)

    def stored_size(self, size: int) -> int:
        """Return the stored size of `size` plain bytes."""
        return stored_size(size, self.chunk_bytes)

    def seal(self, pieces: Iterable[Buffer], size: int) -> "Sealed":
        """Encrypt `pieces`, `size` bytes in total; can be iterated repeatedly if `pieces` can.

        Iterating raises InvalidRequestError if the total size differs.
        """
        return Sealed(self, pieces, size)

    def stored_range(self, start: int, end: int, size: int) -> tuple[int, int]:
        """Return the stored range [first, end) to read for the plain range [start, end) of `size`.

        The stored range consists of complete chunks.
        """
        assert 0 <= start < end <= size, (start, end, size)
        stride = self.chunk_bytes + TAG_BYTES
        first, last = start // self.chunk_bytes, (end - 1) // self.chunk_bytes
        return first * stride, min((last + 1) * stride, self.stored_size(size))

    def open_range(self, stored: bytes, start: int, end: int, size: int, *, path: str) -> bytes:
        """Decrypt the plain bytes [start, end) of `size`, from the range given by `stored_range`.

        Raises:
            DataCorruptionError: Bytes are missing or were changed.
        """
        first, stored_end = self.stored_range(start, end, size)
        if len(stored) != stored_end - first:
            raise DataCorruptionError(
                f"only {len(stored)} of {stored_end - first} bytes arrived; {_RESTORE}",
                path=path,
                position=first,
            )
        stride = self.chunk_bytes + TAG_BYTES
        number, view = first // stride, memoryview(stored)
        skip = start - number * self.chunk_bytes
        plain = [
            self._open_chunk(view[at : at + stride], number + at // stride, size, path)
            for at in range(0, len(view), stride)
        ]
        whole = plain[0] if len(plain) == 1 else b"".join(plain)
        return whole if len(whole) == end - start else whole[skip : skip + end - start]

    def seal_body(self, body: bytes) -> bytes:
        """Encrypt a manifest's body: nonce, then a single encrypted chunk."""
        # A rewrap writes the manifest again under the same data key, so the nonce must be random.
        # Its first byte differs from all nonces of chunks.
        nonce = _BODY + os.urandom(_NONCE_BYTES - 1)
        return nonce + bytes(self._seal.encrypt(nonce, body, self._bound_to("manifest", 0, True)))

    def open_body(self, stored: bytes, *, path: str) -> bytes:
        """Decrypt a manifest's body.

        Raises:
            DataCorruptionError: The body was changed, or encrypted by another key.
        """
        nonce, sealed = stored[:_NONCE_BYTES], stored[_NONCE_BYTES:]
        opened = self._opened(nonce, sealed, self._bound_to("manifest", 0, True))
        if opened is None:
            raise DataCorruptionError(f"the body doesn't decrypt; {_RESTORE}", path=path)
        return opened

    def seal_chunk(self, data: bytes | memoryview, number: int, size: int) -> bytes:
        """Encrypt chunk `number` of a log of `size` plain bytes."""
        last = number == self._chunks(size) - 1
        return bytes(self._seal.encrypt(_nonce(number), data, self._bound_to("log", number, last)))

    def _open_chunk(self, sealed: memoryview, number: int, size: int, path: str) -> bytes:
        last = number == self._chunks(size) - 1
        opened = self._opened(_nonce(number), sealed, self._bound_to("log", number, last))
        if opened is None:
            raise DataCorruptionError(
                f"chunk {number} doesn't decrypt: it was changed, or belongs to another "
                f"segment than {self.segment_id}; {_RESTORE}",
                path=path,
                position=number * (self.chunk_bytes + TAG_BYTES),
            )
        return opened

    def _opened(self, nonce: bytes, sealed: bytes | memoryview, bound: bytes) -> bytes | None:
        return _opened(self._seal, nonce, sealed, bound)

    def _bound_to(self, what: str, number: int, last: bool) -> bytes:
        return f"{what} {self.segment_id} {number} {int(last)}".encode()

    def _chunks(self, size: int) -> int:
        return _chunks(size, self.chunk_bytes)


def stored_size(size: int, chunk_bytes: int = CHUNK_BYTES) -> int:
    """Return the stored size of an encrypted log of `size` bytes."""
    return size + TAG_BYTES * _chunks(size, chunk_bytes)


def _chunks(size: int, chunk_bytes: int) -> int:
    return max(1, -(-size // chunk_bytes))


class Sealed:
    """The encrypted bytes of a segment's log, as an iterable of chunks with tags."""

    def __init__(self, key: DataKey, pieces: Iterable[Buffer], size: int) -> None:
        self._key, self._pieces, self._size = key, pieces, size

    def __iter__(self) -> Iterator[bytes]:
        for number, chunk in enumerate(self._chunks()):
            yield self._key.seal_chunk(chunk, number, self._size)

    def _chunks(self) -> Iterator[bytes | memoryview]:
        """Split the pieces into chunks; chunks within a piece aren't copied."""
        chunk_bytes, held, total = self._key.chunk_bytes, bytearray(), 0
        for piece in self._pieces:
            view = memoryview(piece).cast("B")
            total += len(view)
            if total > self._size:
                break
            if held:
                taken = min(len(view), chunk_bytes - len(held))
                held += view[:taken]
                view = view[taken:]
                if len(held) == chunk_bytes:
                    yield bytes(held)
                    held.clear()
            whole = len(view) - len(view) % chunk_bytes
            for at in range(0, whole, chunk_bytes):
                yield view[at : at + chunk_bytes]
            held += view[whole:]
        if total != self._size:
            raise InvalidRequestError(
                f"segment {self._key.segment_id}: {'more' if total > self._size else total} bytes "
                f"were read, but {self._size} were announced: the segment changed during the "
                "copy; copy the segment again"
            )
        if held or not total:
            yield bytes(held)


def new_data_key(
    ring: Keyring, segment_id: str, *, chunk_bytes: int = CHUNK_BYTES
) -> tuple[DataKey, WrappedKey]:
    """Return a new data key for a segment's upload, and the data key wrapped by the current key.

    Raises:
        InvalidRequestError: The required package is missing.
    """
    if not 1 <= chunk_bytes <= 1 << 30:
        raise InvalidRequestError(f"chunk_bytes={chunk_bytes} must be between 1 and 1 GiB")
    key = os.urandom(KEY_BYTES)
    wrapped = wrap_key(ring, key, segment_id, chunk_bytes)
    return DataKey(key, segment_id, chunk_bytes), wrapped


def open_data_key(ring: Keyring, segment_id: str, wrapped: WrappedKey) -> DataKey:
    """Unwrap the data key in a manifest.

    Raises:
        InvalidRequestError: The ring lacks this master key, or has another key with its id; or a
            package is missing.
        UnsupportedVersionError: A newer version of sparklog wrote the manifest.
    """
    return DataKey(unwrap_key(ring, segment_id, wrapped), segment_id, wrapped.chunk_bytes)


def rewrap(ring: Keyring, segment_id: str, wrapped: WrappedKey) -> WrappedKey:
    """Wrap a data key by the ring's current key; the encrypted data don't change.

    The errors are those of `open_data_key`.
    """
    key = unwrap_key(ring, segment_id, wrapped)
    return wrap_key(ring, key, segment_id, wrapped.chunk_bytes)


_RESTORE: Final = "restore the object from a copy of the bucket"


def wrap_key(
    ring: Keyring, key: bytes, segment_id: str, chunk_bytes: int = CHUNK_BYTES
) -> WrappedKey:
    """Wrap a data key by the ring's current key, bound to the id of a segment or other object."""
    nonce = os.urandom(_NONCE_BYTES)
    bound = _wrap_bound(segment_id, ring.current, chunk_bytes)
    sealed = nonce + _aes_gcm(ring.key(ring.current)).encrypt(nonce, key, bound)
    return WrappedKey(SCHEME, ring.current, base64.b64encode(sealed).decode(), chunk_bytes)


def unwrap_key(ring: Keyring, segment_id: str, wrapped: WrappedKey) -> bytes:
    """Reverse `wrap_key`. The errors are those of `open_data_key`."""
    if wrapped.scheme != SCHEME:
        raise UnsupportedVersionError(
            f"segment {segment_id} is sealed by {wrapped.scheme!r}, which this version "
            "doesn't know: read it with a newer sparklog"
        )
    key_id, chunk_bytes = wrapped.key_id, wrapped.chunk_bytes
    try:
        sealed = base64.b64decode(wrapped.wrapped_key, validate=True)
    except (ValueError, binascii.Error):
        sealed = b""
    if not (key_id and chunk_bytes > 0 and sealed):
        raise DataCorruptionError(
            f"the manifest contains no wrapped key; {_RESTORE}", path=f"segment {segment_id}"
        )
    master = ring.find(key_id)
    if master is None:
        raise InvalidRequestError(
            f"segment {segment_id} is encrypted under master key {key_id!r}, and the key ring has "
            f"{', '.join(ring.ids)}: add {key_id!r} to the key ring"
        )
    bound = _wrap_bound(segment_id, key_id, chunk_bytes)
    key = _opened(_aes_gcm(master), sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
    if key is None:
        raise InvalidRequestError(
            f"segment {segment_id} was encrypted under another master key {key_id!r} than the key "
            f"ring has: put the 32 bytes that {key_id!r} meant then into the key ring"
        )
    return key


def _wrap_bound(segment_id: str, key_id: str, chunk_bytes: int) -> bytes:
    return f"key {SCHEME} {segment_id} {chunk_bytes} {key_id}".encode()


def _nonce(number: int) -> bytes:
    return number.to_bytes(_NONCE_BYTES, "big")


def _opened(cipher: Any, nonce: bytes, sealed: bytes | memoryview, bound: bytes) -> bytes | None:
    """Decrypt and return the bytes. Returns None for a wrong tag."""
    from cryptography.exceptions import InvalidTag

    try:
        return bytes(cipher.decrypt(nonce, sealed, bound))
    except (InvalidTag, ValueError):  # ValueError: shorter than a nonce
        return None


def _aes_gcm(key: bytes) -> Any:
    with needed(InvalidRequestError):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    make: Callable[[bytes], Any] = AESGCM
    return make(key)
