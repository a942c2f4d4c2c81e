"""How a file of a log is damaged. A log is a dict of its files; each damage returns another one."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.damage.model import Files, Kind

Damage = Callable[[Mapping[str, bytes], Kind], Files | None]
"""Returns the damaged files; None if this kind of file cannot be damaged so."""


def _replaced(files: Mapping[str, bytes], name: str, data: bytes) -> Files | None:
    return None if files[name] == data else {**files, name: data}


def _below(files: Mapping[str, bytes], directory: str) -> Files:
    """The files of a directory, by their names in it."""
    return {n.removeprefix(directory): d for n, d in files.items() if n.startswith(directory)}


def missing(files: Mapping[str, bytes], kind: Kind) -> Files | None:
    """Delete the file, or the directory."""
    if kind.is_directory:
        return {name: data for name, data in files.items() if not name.startswith(kind.file)}
    return {name: data for name, data in files.items() if name != kind.file}


def empty(files: Mapping[str, bytes], kind: Kind) -> Files | None:
    """Keep the name and none of the bytes."""
    return _replaced(files, kind.file, b"")


def flipped(files: Mapping[str, bytes], kind: Kind) -> Files | None:
    """Flip a bit in the middle."""
    data = files[kind.file]
    at = len(data) // 2
    return None if not data else {**files, kind.file: _flip(data, at)}


def flipped_head(files: Mapping[str, bytes], kind: Kind) -> Files | None:
    """Flip a bit near the beginning, where formats have what no checksum covers."""
    data = files[kind.file]
    return None if len(data) < 16 else {**files, kind.file: _flip(data, 7)}


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def truncated(files: Mapping[str, bytes], kind: Kind) -> Files | None:
    """Keep the first half."""
    data = files[kind.file]
    return _replaced(files, kind.file, data[: len(data) // 2])


def older(files: Mapping[str, bytes], kind: Kind) -> Files | None:
    """Put an earlier content of the file in its place, or that of the file before it."""
    return None if kind.older is None else _replaced(files, kind.file, kind.older)


def swapped(files: Mapping[str, bytes], kind: Kind) -> Files | None:
    """Exchange the contents of the file and of its neighbour."""
    if kind.neighbour is None:
        return None
    if kind.is_directory:
        ours, theirs = (_below(files, name) for name in (kind.file, kind.neighbour))
        kept = {n: d for n, d in files.items() if not n.startswith((kind.file, kind.neighbour))}
        kept |= {kind.file + name: data for name, data in theirs.items()}
        return kept | {kind.neighbour + name: data for name, data in ours.items()}
    if files[kind.file] == files[kind.neighbour]:
        return None
    return {**files, kind.file: files[kind.neighbour], kind.neighbour: files[kind.file]}


def doubled(files: Mapping[str, bytes], kind: Kind) -> Files | None:
    """Repeat the file's content behind its end."""
    return _replaced(files, kind.file, 2 * files[kind.file])


def copied(files: Mapping[str, bytes], kind: Kind) -> Files | None:
    """Add a second copy under the name that comes next, or another name that is read as well."""
    if kind.following is None or kind.following in files:
        return None
    if kind.is_directory:
        copy = {kind.following + name: data for name, data in _below(files, kind.file).items()}
        return {**files, **copy}
    return {**files, kind.following: files[kind.file]}


_OF_DIRECTORIES: Final = ("missing", "swapped", "copied")

DAMAGES: Final[dict[str, Damage]] = {
    "missing": missing,
    "empty": empty,
    "flipped": flipped,
    "flipped-head": flipped_head,
    "truncated": truncated,
    "older": older,
    "swapped": swapped,
    "doubled": doubled,
    "copied": copied,
}


def damaged(files: Mapping[str, bytes], kind: Kind, damage: str) -> Files | None:
    """Return the damaged files; None if this kind cannot be damaged so."""
    if kind.is_directory and damage not in _OF_DIRECTORIES:
        return None
    return DAMAGES[damage](files, kind)
