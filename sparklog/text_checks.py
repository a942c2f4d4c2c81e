r"""Reject strings without a UTF-8 form, and invalid paths, before they can fail later.

A Python string can contain half a surrogate pair, which has no UTF-8 form: from JSON with a lone
"\ud800", or from bytes that were decoded with `surrogateescape`. Such a string can't be stored.
"""

import os

from sparklog.errors import InvalidRequestError


def check_text(name: str, value: str) -> None:
    """Raise InvalidRequestError unless `value` (of `name`) has a UTF-8 form."""
    if not _has_utf8(value):
        raise InvalidRequestError(
            f"{name} {value!r} contains half a surrogate pair, which has no UTF-8 form: give text "
            "that can be written as UTF-8"
        )


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path of this machine as text. Names with invalid UTF-8 bytes are preserved.

    Raises:
        InvalidRequestError: The value is not text, or contains characters that no path can have.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise InvalidRequestError(
            f"path={path!r}: expected text or a pathlib.Path; os.fsdecode converts bytes to text"
        )
    try:
        # Halves of surrogate pairs that stand for bytes of a file name pass; others raise.
        raw = os.fsencode(text)
    except UnicodeEncodeError:
        raise InvalidRequestError(
            f"path={text!r} contains half a surrogate pair, which no file name can contain: "
            "correct it"
        ) from None
    if b"\0" in raw:
        raise InvalidRequestError(
            f"path={text!r} contains a null character, which no file name can contain: correct it"
        )
    return text


def _has_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
