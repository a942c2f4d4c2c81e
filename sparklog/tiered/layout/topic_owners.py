"""Ownership of topics in a bucket: detects two logs that are copies of each other.

    owners/<log id>     the log's token, different for each service that starts
    owners/<topic id>   the log that copies this topic

A copied log dir has the same log id and token as the original. The first of the two that starts a
service writes a new token; the other log then finds a token that it never wrote. A restored log has
its own id, and finds that the topic has another owner. A service that finds a foreign owner does
not copy or delete anything of the topic until an operator requests to take over. Missing owner
objects (in a bucket of an earlier version) are created by the first service. A service that lent
its lease in between finds the borrower's token in its own log dir, after its own token.
The token is written to `sparklog.remote` before the bucket, so a log recognizes its own token after
a crash.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from sparklog.clock import Clock
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import FileSystem
from sparklog.log.topic_names import new_topic_id
from sparklog.storage.stored_json import seal, unseal
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.settings import RemoteSettings, read_settings, write_settings

PREFIX: Final = "owners/"
LOOK_MS: Final = 300_000  # maximum age of a check; shorter than the sweep's hour of grace
_TOKENS_KEPT: Final = 16  # the bucket has the last, unless all later PUTs failed
_CURE: Final = (
    "To use both log dirs, give this one another URL or new topics. To continue with this log "
    "dir, stop the other and take over, once: sparklog serve PATH --take-over, or "
    "Service(path, take_over=True)"
)


@dataclass(frozen=True, slots=True)
class _Owner:
    """The content of an object that marks which log may write below a prefix.

    The owner object of a log has a random token, by which the log recognizes its own bucket. The
    owner object of a topic has no token.
    """

    log_id: str
    token: str
    path: str
    since_ms: int

    @classmethod
    def parse(cls, raw: bytes, path: str) -> "_Owner":
        cure = f"take over: {_CURE}"
        content = unseal("owner", raw, path=path, cure=cure)
        try:
            return cls(*(content[name] for name in ("log_id", "token", "path", "since_ms")))
        except KeyError as error:
            raise DataCorruptionError(
                f"the object is not an owner object ({error!r}); {cure}", path=path
            ) from error

    def to_bytes(self) -> bytes:
        return seal("owner", {name: getattr(self, name) for name in self.__slots__})

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="seconds")
        return f"the log at {self.path} (id {self.log_id}, since {since})"


class TopicOwners:
    """Ownership of a log's topics, while the log's service runs. Not thread-safe.

    Args:
        fs: The file system.
        home: The first log dir.
        store: The bucket.
        clock: The clock.
        take_over: Make the log the owner of all its topics at the first check.
        check: Called before each object is written or deleted; raises if the lease is lost.
        missing: Called if the log's own object was deleted; raises if the URL leads to another
            store now.
    """

    def __init__(
        self,
        fs: FileSystem,
        home: str,
        store: Store,
        clock: Clock,
        *,
        take_over: bool = False,
        check: Callable[[], None] = lambda: None,
        missing: Callable[[], None] = lambda: None,
    ) -> None:
        self._missing = missing
        self._fs, self._home, self._store, self._clock = fs, home, store, clock
        self._take_over, self._check = take_over, check
        self._mine: _Owner | None = None  # written by this or a later service of this log dir
        self._claimed: set[str] = set()
        self._looked_ms = float("-inf")
        self._foreign: dict[str, str] = {}

    def foreign(
        self, topics: Mapping[str, str], *, fresh: bool = False, dry_run: bool = False
    ) -> dict[str, str]:
        """Return {topic id: reason} of the topics that another log owns; claim the others.

        Cost: a GET for the log and per topic; at the first check a PUT, and another per topic
        without owner.

        Args:
            topics: {topic id: topic}.
            fresh: Check the bucket even if the last check is less than five minutes old. New
                topics are always checked.
            dry_run: Claim no topic.

        Raises:
            StorageUnavailableError: The bucket can't be read or written.
            InvalidRequestError: The log has no remote storage.
        """
        now = self._clock()
        seen = self._claimed | self._foreign.keys()
        if fresh or dry_run or now - self._looked_ms >= LOOK_MS or not topics.keys() <= seen:
            self._foreign = self._read_owners(topics, dry_run=dry_run)
            if not dry_run:
                self._claimed |= topics.keys() - self._foreign.keys()
                self._looked_ms, self._take_over = now, False
        return {key: why for key, why in self._foreign.items() if key in topics}

    def _read_owners(self, topics: Mapping[str, str], *, dry_run: bool) -> dict[str, str]:
        settings = read_settings(self._fs, self._home)
        if settings is None:
            raise InvalidRequestError(
                f"{self._home} has no remote storage: set the URL with --remote", path=self._home
            )
        names = [PREFIX + key for key in (settings.log_id, *topics) if key]
        raw = dict(zip(names, self._store.get_many(names), strict=True))
        if self._mine and isinstance(raw.get(PREFIX + settings.log_id), FileNotFoundError):
            self._missing()
        if not self._log_is_mine(settings, raw.get(PREFIX + settings.log_id)):
            why = (
                f"another log dir with the same log id uses {self._store.url}: one is a copy "
                f"of the other, or was restored from a backup. {_CURE}"
            )
            return {key: f"{topic} is not copied: {why}" for key, topic in topics.items()}
        if not dry_run:
            self._write_token(settings, raw.get(PREFIX + settings.log_id))
        foreign = {}
        for key, topic in topics.items():
            why = self._claim(key, raw[PREFIX + key], settings, dry_run=dry_run)
            if why:
                foreign[key] = f"{topic} is not copied: {why}"
        return foreign

    def _log_is_mine(self, settings: RemoteSettings, raw: bytes | Exception | None) -> bool:
        if self._take_over or raw is None or isinstance(raw, FileNotFoundError):
            return True
        try:
            owner = _Owner.parse(_got(raw), PREFIX + settings.log_id)
        except DataCorruptionError:
            return False
        if self._mine is None:
            return owner.token in settings.tokens
        # The lease may have been lent: the borrower's service wrote its own token, to this log dir
        # first.
        if owner.token not in _from(self._mine.token, settings.tokens):
            return False
        self._mine = owner
        return True

    def _write_token(self, settings: RemoteSettings, raw: bytes | Exception | None) -> None:
        """Write a token at the first check, and again if the token's object was deleted."""
        if self._mine is not None and isinstance(raw, bytes):
            return
        self._check()
        mine = _Owner(settings.log_id or new_topic_id(), new_topic_id(), self._home, self._clock())
        tokens = (*settings.tokens, mine.token)[-_TOKENS_KEPT:]
        # In this order, a crash in between leaves a token in the log dir that the bucket lacks,
        # which is harmless. In the other order the log would not recognize its own token.
        write_settings(self._fs, self._home, replace(settings, log_id=mine.log_id, tokens=tokens))
        self._store.put(PREFIX + mine.log_id, mine.to_bytes())
        self._mine = mine

    def _claim(
        self, key: str, raw: bytes | Exception, settings: RemoteSettings, *, dry_run: bool
    ) -> str:
        """Make the log the owner of a topic; return the reason if another log owns the topic."""
        log_id = settings.log_id if self._mine is None else self._mine.log_id
        if not isinstance(raw, FileNotFoundError):
            try:
                owner = _Owner.parse(_got(raw), PREFIX + key)
            except DataCorruptionError as error:
                if not self._take_over:
                    return str(error)
            else:
                if owner.log_id == log_id:
                    return ""
                if not self._take_over:
                    return f"the copies in {self._store.url} belong to {owner}. {_CURE}"
        if not dry_run:
            self._check()
            assert self._mine is not None
            self._store.put(PREFIX + key, replace(self._mine, token="").to_bytes())
        return ""

    def forget(self, topics: Iterable[str]) -> int:
        """Delete this log's owner objects of other topics; return their number.

        `topics`: the ids of all topics that the log has, or of which it still manages copies.
        Cost: a list request, and a GET per object of other logs that share the bucket.
        """
        if self._mine is None:
            return 0
        kept = {PREFIX + key for key in (self._mine.log_id, *topics)}
        names = [o.name for o in self._store.list(PREFIX) if o.name not in kept]
        mine = []
        for name, raw in zip(names, self._store.get_many(names), strict=True):
            if isinstance(raw, bytes) and self._is_mine(raw, name):
                mine.append(name)
        if mine:
            self._check()
            self._store.delete(mine)
            self._claimed -= {name.removeprefix(PREFIX) for name in mine}
        return len(mine)

    def _is_mine(self, raw: bytes, name: str) -> bool:
        try:
            owner = _Owner.parse(raw, name)
        except DataCorruptionError:
            return False
        return self._mine is not None and owner.log_id == self._mine.log_id


def owner_bytes(log_id: str, path: str, since_ms: int) -> bytes:
    """Return the content of `owners/<topic id>` for the log at `path`."""
    return _Owner(log_id, "", path, since_ms).to_bytes()


def check_owner(raw: bytes, path: str) -> None:
    """Raise DataCorruptionError unless the bytes are an owner object."""
    _Owner.parse(raw, path)


def is_owned(store: Store, owned: str) -> bool:
    """Return True if a service has written an owner object for this log id or topic id."""
    try:
        store.get(PREFIX + owned)
    except FileNotFoundError:
        return False
    return True


def _from(token: str, tokens: Sequence[str]) -> Sequence[str]:
    """Return a token and all tokens that this log dir wrote after it.

    For a token that this log dir never wrote, return all tokens.
    """
    return (token, *tokens[tokens.index(token) + 1 if token in tokens else 0 :])


def _got(raw: bytes | Exception) -> bytes:
    if isinstance(raw, Exception):
        raise raw
    return raw
