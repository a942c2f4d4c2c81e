"""`WrappedKey`: the data key of an encrypted segment in its manifest. JSON in, JSON out."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key, encrypted by a master key.

    `scheme`: how the segment and this key are encrypted. `key_id`: of the master key.
    `wrapped_key`: nonce, encrypted key and tag in base64. `chunk_bytes`: plain bytes of a chunk.
    """

    scheme: str
    key_id: str
    wrapped_key: str
    chunk_bytes: int

    @classmethod
    def parse(cls, content: object) -> Self:
        """Parse a document; missing fields become "" or 0, and are rejected by `unwrap_key`.

        So a manifest can be read even if this version can't unwrap its key.
        """
        fields = content if isinstance(content, Mapping) else {}
        scheme, key_id, wrapped, chunk_bytes = (fields.get(name) for name in cls.__slots__)
        return cls(
            _text(scheme),
            _text(key_id),
            _text(wrapped),
            chunk_bytes if isinstance(chunk_bytes, int) else 0,
        )

    def to_dict(self) -> dict[str, object]:
        """Return the fields, for JSON."""
        return asdict(self)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
