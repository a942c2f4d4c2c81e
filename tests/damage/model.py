"""The words of a damage table, and what a home must provide to have one."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

Files = dict[str, bytes]
"""A log as its files: {name below the log's place: content}."""
Rows = tuple[object, ...]

COLUMNS: Final = ("r", "rw", "read", "write", "verify", "repair", "status", "round")
"""The actions of a row: open for reading and for writing, read, append, verify, ..."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file, and one file of this kind.

    Attributes:
        name: what the table calls it: "head entry".
        file: its name in `Files`; the name of a directory ends with a slash.
        neighbour: another file of the same kind, for "swapped".
        older: an earlier content, for "older".
        following: a name of the same kind that is free, for "copied".
        holds_records: `status` reads no such file; it notices names and sizes only.
        undetectable: {damage: reason} for damages that nothing can notice by this format.
        unread: {damage: reason} for damages that only `verify` notices, because `status` reads no
            data, or a read has nothing to compare with.
    """

    name: str
    file: str
    neighbour: str | None = None
    older: bytes | None = None
    following: str | None = None
    holds_records: bool = False
    undetectable: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_directory(self) -> bool:
        """Whether all files of a directory are damaged together."""
        return self.file.endswith("/")


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that raised. `is_bare`: the error is none of sparklog's own."""

    message: str
    is_bare: bool = False


Reading = dict[str, Rows | Failed]
"""All that a log returns to its readers: {part, such as "t-0" or "group g": rows or the error}."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of `verify` or `status`.

    Attributes:
        word: "ok" or "damage"; "green", "amber" or "red"; "ok" or "errors" for a service round.
        text: everything that was told.
        commands: those that are quoted, without "sparklog" in front.
        is_unwritable: the verdict says that the log can't be written.
    """

    word: str
    text: str = ""
    commands: tuple[str, ...] = ()
    is_unwritable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """What is run on a log at a path; each raises what the command raises."""

    open_r: Callable[[str], None]
    open_rw: Callable[[str], None]
    read: Callable[[str], Reading]
    append: Callable[[str], Reading]
    """Appends records; returns the parts that grew, with the rows that were added."""
    verify: Callable[[str], Verdict]
    repair: Callable[[str], Verdict]
    status: Callable[[str], Verdict]
    round: Callable[[str], Verdict]


class Place(Protocol):
    """A copy of a log, laid out where sparklog can open it."""

    @property
    def path(self) -> str:
        """What a user gives to `sparklog.open`."""

    @property
    def url(self) -> str:
        """The URL of the store: the log's own, or that of its copies."""

    def files(self) -> Files:
        """The files as they are now."""


class Home(Protocol):
    """A log with every kind of file, of one home."""

    @property
    def name(self) -> str:
        """The table's name."""

    @property
    def files(self) -> Files:
        """The undamaged log."""

    @property
    def kinds(self) -> Sequence[Kind]:
        """Every kind of file in it."""

    @property
    def foreign_words(self) -> Sequence[str]:
        """Words that no message may have: advice of other homes, names of Python's errors."""

    @property
    def actions(self) -> Actions:
        """What is run on it."""

    def lay_out(self, files: Files) -> AbstractContextManager[Place]:
        """Lay out a copy that is deleted with the block."""
