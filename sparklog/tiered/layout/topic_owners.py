"""Which log owns a topic in a bucket: refuses two logs that are copies of one another.

    owners/<log id>     the log's token: another one for each service that starts
    owners/<topic id>   which log copies this topic

A log dir that is copied takes its log id along, and the token that was true then. Whichever of the
two starts a service first writes another token; the other one finds a token that it never wrote. A
log that was restored has an id of its own, and finds the topic owned. Who finds that keeps its
hands off until somebody says that it shall take over. Objects that aren't there (a bucket of an
earlier version) are nobody's: they become the first one's. A service that lent its lease meanwhile
finds the token of who had it: in its own log dir, behind its own.

The token lies in `sparklog.remote` before it lies in the bucket, so no crash makes a log a stranger
to itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from sparklog.clock import Clock
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import FileSystem
from sparklog.log.topic_names import new_topic_id
from sparklog.storage.checksummed_json import seal, unseal
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.settings import RemoteSettings, read_settings, write_settings

PREFIX: Final = "owners/"
LOOK_MS: Final = 300_000  # how old a look may be; shorter than the sweep's hour of grace
_TOKENS_KEPT: Final = 16  # the last is the bucket's, unless the puts of all later ones failed
_CURE: Final = (
    "To use this log dir beside it, give it another URL or new topics. If this is the one to go "
    "on, stop the other and take over, once: sparklog serve PATH --take-over, or "
    "Service(path, take_over=True)"
)


@dataclass(frozen=True, slots=True)
class _Owner:
    """What an owner object says; of a log its token, of a topic none."""

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
            raise DataCorruptionError(f"no owner ({error!r}); {cure}", path=path) from error

    def to_bytes(self) -> bytes:
        return seal("owner", {name: getattr(self, name) for name in self.__slots__})

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="seconds")
        return f"the log at {self.path} (id {self.log_id}, since {since})"


class TopicOwners:
    """One log's side of it, while its service runs. Not thread-safe.

    Args: home: the first log dir. take_over: the first look makes the log the owner of all it is
        asked about. check: is called before each object that is written or removed (a lease).
            missing: is called when the log's object, which this service wrote, is gone; raises if
            the store is another one by now.
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
        self._mine: _Owner | None = None  # by this service, or one of this log dir after it
        self._claimed: set[str] = set()
        self._looked_ms = float("-inf")
        self._foreign: dict[str, str] = {}

    def foreign(
        self, topics: Mapping[str, str], *, fresh: bool = False, dry_run: bool = False
    ) -> dict[str, str]:
        """Return {topic id: why not} of the topics that another log owns; claims the others.

        Args: topics: {topic id: topic}. fresh: looks at the bucket even if the last look isn't
            five minutes old, as it does for topics that are new to it.
        Raises: StorageUnavailableError; InvalidRequestError if the log has no remote storage yet.
        Cost: a get for the log and for each topic; at the first look a put, and one for each topic
        that is nobody's.
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
                f"{self._home} has no remote storage: give its URL", path=self._home
            )
        names = [PREFIX + key for key in (settings.log_id, *topics) if key]
        raw = dict(zip(names, self._store.get_many(names), strict=True))
        if self._mine and isinstance(raw.get(PREFIX + settings.log_id), FileNotFoundError):
            self._missing()
        if not self._log_is_mine(settings, raw.get(PREFIX + settings.log_id)):
            why = (
                f"another log dir with this one's id works in {self._store.url}: one is a copy "
                f"of the other, or was brought back from a backup. {_CURE}"
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
        if owner.token not in _from(self._mine.token, settings.tokens):
            return False
        self._mine = owner
        return True

    def _write_token(self, settings: RemoteSettings, raw: bytes | Exception | None) -> None:
        """Write a token at the first look, and again whenever somebody removed it."""
        if self._mine is not None and isinstance(raw, bytes):
            return
        self._check()
        mine = _Owner(settings.log_id or new_topic_id(), new_topic_id(), self._home, self._clock())
        tokens = (*settings.tokens, mine.token)[-_TOKENS_KEPT:]
        write_settings(self._fs, self._home, replace(settings, log_id=mine.log_id, tokens=tokens))
        self._store.put(PREFIX + mine.log_id, mine.to_bytes())
        self._mine = mine

    def _claim(
        self, key: str, raw: bytes | Exception, settings: RemoteSettings, *, dry_run: bool
    ) -> str:
        """Make a topic the log's own; returns why not if it is another's."""
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
                    return f"its copies in {self._store.url} are those of {owner}. {_CURE}"
        if not dry_run:
            self._check()
            assert self._mine is not None
            self._store.put(PREFIX + key, replace(self._mine, token="").to_bytes())
        return ""

    def forget(self, topics: Iterable[str]) -> int:
        """Remove what still makes this log the owner of other topics; returns how many.

        Args: topics: ids of all that it has, or had and still looks after.
        Cost: a list request, and a get for each object of other logs that share the bucket.
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
    """Return what `owners/<topic id>` holds where the log at `path` keeps a topic there."""
    return _Owner(log_id, "", path, since_ms).to_bytes()


def check_owner(raw: bytes, path: str) -> None:
    """Raise DataCorruptionError unless the bytes are an owner object."""
    _Owner.parse(raw, path)


def is_owned(store: Store, owned: str) -> bool:
    """Tell whether a service has been at work in a store: for this log (or a copy), or topic id."""
    try:
        store.get(PREFIX + owned)
    except FileNotFoundError:
        return False
    return True


def _from(token: str, tokens: Sequence[str]) -> Sequence[str]:
    """Return a token and those that were written to this very log dir later: all, if it is gone."""
    return (token, *tokens[tokens.index(token) + 1 if token in tokens else 0 :])


def _got(raw: bytes | Exception) -> bytes:
    if isinstance(raw, Exception):
        raise raw
    return raw
