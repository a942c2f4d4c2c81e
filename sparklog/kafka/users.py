"""The users' file: names, SCRAM keys and rights of clients.

    {"users": {
        "alice": {"rights": ["read", "write"], "SCRAM-SHA-512": {"salt": ..., "iterations": ...}},
        "CN=loader": {"rights": ["write"]}}}

A user without keys authenticates with a client certificate in the user's name. The file is replaced
by a rename and readable only by its owner. A running endpoint reloads a changed file, and continues
with the last valid content if the file is missing or damaged.
"""

import contextlib
import fcntl
import json
import logging
import os
import secrets
import stat
import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.fs import LOCAL
from sparklog.fs.files import translate_os_errors
from sparklog.kafka.credentials import SCRAM, Mechanism, ScramCredential, decoy
from sparklog.network.tls import file_stamp

_LOGGER: Final = logging.getLogger("sparklog.kafka")
_SIZE_MAX: Final = 16 << 20  # a user needs about 500 bytes
_NAME_MAX: Final = 255  # RFC 4616


class Right(StrEnum):
    """Rights of a user. They are independent of each other; describing needs any one of them."""

    READ = "read"
    """Fetch, and join groups."""
    WRITE = "write"
    """Produce."""
    ADMIN = "admin"
    """Create, change and delete topics; delete records and groups; change users."""


ALL: Final = frozenset(Right)
NONE: Final[frozenset[Right]] = frozenset()


@dataclass(frozen=True, slots=True)
class User:
    """A user. `credentials` are by mechanism, empty for a user with a client certificate."""

    name: str
    rights: frozenset[Right]
    credentials: Mapping[Mechanism, ScramCredential]

    @property
    def rights_held(self) -> list[str]:
        """Names of the rights, in order."""
        return [right.value for right in Right if right in self.rights]

    def to_dict(self) -> dict[str, object]:
        """Return the entry of the users' file."""
        rights: dict[str, object] = {"rights": self.rights_held}
        return rights | {m.value: c.to_dict() for m, c in sorted(self.credentials.items())}

    @classmethod
    def from_dict(cls, name: str, entry: object) -> Self:
        """Read an entry that `to_dict` returned.

        Raises:
            InvalidRequestError: The entry is invalid.
        """
        if not isinstance(entry, Mapping) or "rights" not in entry:
            raise InvalidRequestError("the entry must be an object with rights")
        check_name(name)
        found: dict[Mechanism, ScramCredential] = {}
        for key, value in entry.items():
            if key in SCRAM:
                found[Mechanism(key)] = ScramCredential.from_dict(Mechanism(key), value)
            elif key != "rights":
                raise InvalidRequestError(f"{key!r}: a user may have rights, {' or '.join(SCRAM)}")
        rights = entry["rights"]
        if not isinstance(rights, list):
            raise InvalidRequestError("rights must be a list of read, write, admin")
        return cls(name, parse_rights(",".join(map(str, rights))), found)


def check_name(name: str) -> None:
    """Raise InvalidRequestError for a name that clients cannot send or that resembles another."""
    if not 0 < len(name.encode()) <= _NAME_MAX:
        raise InvalidRequestError(f"a user's name must have 1 to {_NAME_MAX} bytes: {name[:40]!r}")
    if not name.isprintable() or unicodedata.normalize("NFKC", name) != name:
        raise InvalidRequestError(f"the user's name {name!r} isn't printable text in NFKC")


def parse_rights(text: str) -> frozenset[Right]:
    """Parse "read,write"; "" means no rights. Raises InvalidRequestError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in ALL:
            raise InvalidRequestError(f"right {word!r}: rights must be among {', '.join(Right)}")
    return frozenset(map(Right, words))


def parse_users(data: bytes, *, path: str) -> dict[str, User]:
    """Parse a users' file.

    Raises:
        InvalidRequestError: The file is invalid. The message names the user, and contains no keys.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        # json keeps the last of two equal names, so a second entry could silently add a right.
        if len(found) != len(items):
            raise ValueError("a name occurs twice")
        return found

    try:
        document = json.loads(data.decode(), object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        why = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise InvalidRequestError(f"{path}: not a users' file: {why}", path=path) from None
    users = document.get("users") if isinstance(document, dict) else None
    if not isinstance(users, dict) or set(document) != {"users"}:
        raise InvalidRequestError(
            f'{path}: not a users\' file: it must contain {{"users": {{name: {{...}}}}}}; '
            "`sparklog kafka-users` creates one", path=path,
        )  # fmt: skip
    found = {}
    for name, entry in users.items():
        try:
            found[name] = User.from_dict(name, entry)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{path}: user {name!r}: {error}", path=path) from None
    return found


def read_users(path: str) -> dict[str, User]:
    """Return the users in a file by name.

    Raises:
        InvalidRequestError: The file is missing, world-writable or invalid.
        StorageUnavailableError: The file can't be read.
    """
    try:
        with translate_os_errors("read", path), open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_SIZE_MAX + 1)
    except FileNotFoundError:
        raise InvalidRequestError(
            f"{path}: no such users' file; `sparklog kafka-users {path} --add NAME` creates it",
            path=path,
        ) from None
    if len(data) > _SIZE_MAX:
        raise InvalidRequestError(f"{path}: the file is larger than {_SIZE_MAX} bytes", path=path)
    if mode & stat.S_IWOTH:
        raise InvalidRequestError(
            f"{path} is world-writable; run: chmod 600 {path}", path=path
        )
    if mode & stat.S_IROTH:
        _LOGGER.warning("%s is world-readable; run: chmod 600 %s", path, path)
    return parse_users(data, path=path)


def change_users(path: str, change: Callable[[dict[str, User]], None]) -> dict[str, User]:
    """Let `change` modify the users, and replace the file. A missing file is created.

    Concurrent calls wait for each other. If `change` or `read_users` raises an error, the file does
    not change.
    """
    path = os.path.realpath(path)  # preserves a symbolic link
    # The directory is locked, not the file: the file is replaced, and its lock with it.
    with _locked(os.path.dirname(path)):
        users = read_users(path) if os.path.lexists(path) else {}
        change(users)
        document = {"users": {name: user.to_dict() for name, user in sorted(users.items())}}
        _replace(path, (json.dumps(document, indent=1) + "\n").encode())
    return users


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    try:
        with translate_os_errors("open", directory):
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InvalidRequestError(
            f"the directory {directory} of the users file does not exist", path=directory
        ) from None
    try:
        with translate_os_errors("lock", directory):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _replace(path: str, data: bytes) -> None:
    # A random name: neither another process nor a link that an attacker prepared can interfere.
    temporary = f"{path}.{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with translate_os_errors("write", path):
        fd = os.open(temporary, flags, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    # Preserve owner and group, because the endpoint may run as another user.
                    before = os.stat(path)
                    os.fchown(fd, before.st_uid, before.st_gid)
                    os.fchmod(fd, stat.S_IMODE(before.st_mode) & 0o660)
                file.write(data)
                file.flush()
                os.fsync(fd)
            LOCAL.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        LOCAL.sync_dir(os.path.dirname(path))


class Users:
    """The users of an endpoint in memory. Thread-safe.

    Only `refresh` accesses the file. Without a file (`path` None) there are no users.
    """

    def __init__(self, path: str | None) -> None:
        """Read the file. Errors are those of `read_users`."""
        self.path = path
        self._secret = secrets.token_bytes(32)
        self._mutex = threading.Lock()
        self._known: dict[str, User] = {}
        self._seen: tuple[int, ...] | None = None
        if path is not None:
            self._seen = file_stamp(path)
            self._known = read_users(path)

    def refresh(self) -> None:
        """Reload a changed file. Cost: a stat. Errors are logged once per change."""
        if self.path is None:
            return
        with self._mutex:
            stamp = file_stamp(self.path)
            if stamp == self._seen:
                return
            try:
                self._known = read_users(self.path)
                _LOGGER.info("%s: read again, %d users", self.path, len(self._known))
            except (InvalidRequestError, StorageUnavailableError) as error:
                # An editor may be writing the file: clients must not lose their access meanwhile.
                _LOGGER.error("%s; the users stay as they were", error)  # noqa: TRY400
            self._seen = stamp

    @property
    def known(self) -> Mapping[str, User]:
        return self._known

    def find(self, name: str) -> User | None:
        return self._known.get(name)

    def rights(self, name: str) -> frozenset[Right]:
        """Return a user's rights; empty for an unknown name."""
        user = self._known.get(name)
        return NONE if user is None else user.rights

    def credential(self, name: str, mechanism: Mechanism) -> tuple[ScramCredential, bool]:
        """Return a user's keys and True, or a decoy's keys and False.

        For PLAIN the keys of any mechanism, preferably SHA-512.
        """
        user = self._known.get(name)
        found = None if user is None else _held(user, mechanism)
        if found is not None:
            return found, True
        models = [c for c in (_held(u, mechanism) for u in self._known.values()) if c is not None]
        wanted = Mechanism.SCRAM_SHA_512 if mechanism is Mechanism.PLAIN else mechanism
        return decoy(wanted, name, self._secret, models), False


def _held(user: User, mechanism: Mechanism) -> ScramCredential | None:
    if mechanism is not Mechanism.PLAIN:
        return user.credentials.get(mechanism)
    strongest = user.credentials.get(Mechanism.SCRAM_SHA_512)
    return strongest or user.credentials.get(Mechanism.SCRAM_SHA_256)
