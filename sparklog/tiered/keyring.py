"""`Keyring`: the master keys of encrypted tiers, by id. Never stored by sparklog."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem, read_bytes

KEY_BYTES: Final = 32
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)


class Keyring:
    """Master keys that encrypt copies in remote storage, objects of a bucket, and archives.

    Old keys stay in the ring until every segment is rewrapped. The id of a key is no secret: the
    bucket contains it. Neither str() nor an error shows a key.

    Args:
        keys: {id: key of 32 bytes}.
        current: The id of the key that encrypts new segments.

    Raises:
        InvalidRequestError: A key does not have 32 bytes, an id is invalid, or the current key is
            missing.

    Examples:
        >>> import os
        >>> from sparklog.tiered import Keyring
        >>> ring = Keyring({"2026-11": os.urandom(32)}, current="2026-11")
        >>> ring.ids
        ['2026-11']
    """

    def __init__(self, keys: Mapping[str, bytes], current: str) -> None:
        for key_id, key in keys.items():
            if not _ID.fullmatch(key_id):
                raise InvalidRequestError(
                    f"key id {key_id!r}: an id has 1 to 128 letters, digits, '.', '_' or '-'"
                )
            if not isinstance(key, bytes) or len(key) != KEY_BYTES:
                raise InvalidRequestError(
                    f"master key {key_id!r} must have {KEY_BYTES} bytes, such as os.urandom(32)"
                )
        if current not in keys:
            raise InvalidRequestError(
                f"the current master key {current!r} isn't in the key ring ({', '.join(keys)})"
            )
        self._keys, self.current = dict(keys), current

    @classmethod
    def load(cls, path: str, fs: FileSystem = LOCAL) -> "Keyring":
        """Read a keyring from a file, which is JSON or text; keys are in base64.

        `openssl rand -base64 32` prints a new key. In a text file each line contains the id and the
        key, and the last line is the current key. A JSON file has the form {"current": "2026-11",
        "keys": {"2026-10": "base64", "2026-11": "base64"}}.

        Args:
            path: The file.
            fs: The file system; for tests.

        Raises:
            InvalidRequestError: The file is missing or invalid.

        Examples:
            >>> from pathlib import Path
            >>> from sparklog.tiered import Keyring
            >>> length = Path("keys").write_text("2026-11 " + "A" * 43 + "=")
            >>> Keyring.load("keys").ids
            ['2026-11']
        """
        try:
            text = read_bytes(fs, path).decode()
        except FileNotFoundError:
            raise InvalidRequestError(f"{path}: the key ring does not exist", path=path) from None
        except UnicodeDecodeError:
            raise _no_ring(path) from None
        try:
            keys, current = _parse(text)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise _no_ring(path) from None  # the cause's text might contain a key
        try:
            return cls(keys, current)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{path}: {error}", path=path) from None

    @property
    def ids(self) -> list[str]:
        """The ids of the keys."""
        return list(self._keys)

    def find(self, key_id: str) -> bytes | None:
        """Return a key, or None if the ring does not contain it.

        Args:
            key_id: The id of the key.
        """
        return self._keys.get(key_id)

    def key(self, key_id: str) -> bytes:
        """Return a key of the ring.

        Args:
            key_id: The id of the key.

        Raises:
            InvalidRequestError: The ring does not contain the key.
        """
        return self._keys[key_id]

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self._keys)}; current {self.current})"


def _parse(text: str) -> tuple[dict[str, bytes], str]:
    if text.lstrip().startswith("{"):
        document: dict[str, Any] = json.loads(text)
        return {k: _key(v) for k, v in document["keys"].items()}, str(document["current"])
    lines = [line.split() for line in text.splitlines() if not line.lstrip().startswith("#")]
    entries = [(key_id, _key(encoded)) for key_id, encoded in filter(None, lines)]
    keys = dict(entries)
    # With two keys of one id, segments that were encrypted by the first could never be read.
    if len(keys) != len(entries):
        raise ValueError("two keys have the same id")
    return keys, entries[-1][0]


def _key(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


def _no_ring(path: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{path} is not a key ring: the file must be JSON "
        '{"current": id, "keys": {id: base64 of 32 bytes}}, '
        "or have a line `id base64` for each key, each id once",
        path=path,
    )
