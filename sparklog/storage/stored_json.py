"""Stored JSON: parsing, format versions, and small documents with a checksum.

Documents are readable for people: {version, crc32c, NAME: ...}. The checksum covers the content,
independent of whitespace.
"""

import json
from typing import Any, Final

import crc32c

from sparklog.errors import DataCorruptionError, UnsupportedVersionError

FORMAT_VERSION: Final = 1
"""The format version of the ledger's records and of sparklog's own files."""
_WRONG: Final = (KeyError, TypeError, AttributeError, ValueError)


def parse_json(raw: str | bytes | bytearray) -> Any:
    """Parse JSON.

    Raises:
        ValueError: `raw` is not JSON or is nested too deeply.
    """
    try:
        return json.loads(raw)
    # A hostile or damaged document must not end the process.
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def check_version(version: int, what: str, *, newest: int = FORMAT_VERSION) -> None:
    """Raise UnsupportedVersionError if a newer sparklog wrote `what`."""
    if version > newest:
        raise UnsupportedVersionError(
            f"{what} has format version {version}, but this sparklog reads versions up to "
            f"{newest}: open the log with the sparklog that wrote it, or a newer version"
        )


def seal(name: str, content: dict[str, Any], *, indent: int | None = None) -> bytes:
    """Return a document with `content` under `name`. Without `indent` it is ten times faster."""
    document = {"version": FORMAT_VERSION, "crc32c": _crc(content), name: content}
    return (json.dumps(document, indent=indent) + "\n").encode()


def unseal(name: str, raw: bytes, *, path: str, cure: str) -> dict[str, Any]:
    """Return the content of a document that `seal` made.

    Args:
        name: The name under which `seal` stored the content.
        raw: The document.
        path: The file or object, for errors.
        cure: The advice in the message of a DataCorruptionError.

    Raises:
        DataCorruptionError: The document is malformed, or its checksum does not match.
        UnsupportedVersionError: A newer sparklog wrote the document.
    """
    try:
        document = parse_json(raw)
        check_version(document["version"], path)
        content: dict[str, Any] = document[name]
        if document["crc32c"] != _crc(content):
            raise ValueError("the checksum does not match")
    # This error is a ValueError too, and would be reported as corruption by the next clause.
    except UnsupportedVersionError:
        raise
    except _WRONG as error:
        raise DataCorruptionError(
            f"this is not a document of {name} ({_fault(raw, error)}); {cure}", path=path
        ) from error
    return content


def _fault(raw: bytes, error: Exception) -> str:
    if not raw:
        return "the content is empty"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "the content is not JSON"
    if isinstance(error, KeyError):
        return f"field {error} is missing"
    return str(error)


def _crc(content: dict[str, Any]) -> int:
    return crc32c.crc32c(json.dumps(content, sort_keys=True).encode())
