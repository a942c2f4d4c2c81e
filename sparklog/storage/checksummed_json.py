"""Small JSON documents, readable for people, with a checksum: {version, crc32c, NAME: ...}.

The checksum covers the content, independent of whitespace.
"""

import json
from typing import Any, Final

import crc32c

from sparklog.errors import DataCorruptionError, UnsupportedVersionError
from sparklog.storage.bounded_json import parse_json
from sparklog.storage.format_version import FORMAT_VERSION, check_version

_WRONG: Final = (KeyError, TypeError, AttributeError, ValueError)


def seal(name: str, content: dict[str, Any], *, indent: int | None = None) -> bytes:
    """Return a document with `content` under `name`. Without `indent` it is ten times faster."""
    document = {"version": FORMAT_VERSION, "crc32c": _crc(content), name: content}
    return (json.dumps(document, indent=indent) + "\n").encode()


def unseal(name: str, raw: bytes, *, path: str, cure: str) -> dict[str, Any]:
    """Return the content of a document that `seal` made.

    Raises: DataCorruptionError, with the advice `cure`, if the document is malformed or its
    checksum does not match; UnsupportedVersionError if a newer sparklog wrote it.
    """
    try:
        document = parse_json(raw)
        check_version(document["version"], path)
        content: dict[str, Any] = document[name]
        if document["crc32c"] != _crc(content):
            raise ValueError("its checksum does not match")
    except UnsupportedVersionError:
        raise
    except _WRONG as error:
        raise DataCorruptionError(
            f"no document of {name} ({_fault(raw, error)}); {cure}", path=path
        ) from error
    return content


def _fault(raw: bytes, error: Exception) -> str:
    if not raw:
        return "it is empty"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "it is not JSON"
    if isinstance(error, KeyError):
        return f"it has no field {error}"
    return str(error)


def _crc(content: dict[str, Any]) -> int:
    return crc32c.crc32c(json.dumps(content, sort_keys=True).encode())
