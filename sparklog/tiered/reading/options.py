"""Options of reading remote segments: the caches, and the key ring."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from sparklog.configdef import Key, keys_of, option, read
from sparklog.tiered.reading.store_retry import FOLLOW_MS, READ_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    """How a process reads remote segments. Fields are the option names in snake case.

    docs/options.md describes each option.

    Examples:
        >>> from sparklog.tiered import RemoteOptions
        >>> options, others = RemoteOptions.parse({"remote.fetch.threads": 8, "flush": "none"})
        >>> options.remote_fetch_threads, others
        (8, {'flush': 'none'})
    """

    remote_cache_memory_bytes: int = option(
        "remote.cache.memory.bytes",
        64 << 20,
        long=True,
        doc="Own option: memory (bytes) for blocks of remote segments.",
    )
    remote_cache_directory: str = option(
        "remote.cache.directory",
        "",
        doc="Own option: directory for blocks and indexes of remote segments that stay over a "
        "restart; several processes may share it. Empty: memory only.",
    )
    remote_cache_disk_bytes: int = option(
        "remote.cache.disk.bytes",
        1 << 30,
        long=True,
        also=["remote.log.index.file.cache.total.size.bytes"],
        doc="Own option: what that directory may hold (bytes).",
    )
    remote_fetch_threads: int = option(
        "remote.fetch.threads",
        4,
        low=1,
        also=["remote.log.reader.threads"],
        doc="Own option: requests that go ahead of sequential readers at the same time.",
    )
    remote_refresh_ms: int = option(
        "remote.refresh.ms",
        30_000,
        long=True,
        doc="Own option: how old (ms) an archive's listing may be when nothing asks for news.",
    )
    remote_keyring: str = option(
        "remote.keyring",
        "",
        doc="Own option: file with the keys of encrypted segments (docs/encryption.md).",
    )

    remote_patience_ms: int = option(
        "remote.patience.ms",
        -1,
        low=-1,
        long=True,
        doc="Own option: how long (ms) a read waits for a store that doesn't answer, with a "
        "warning each minute. -1: two hours for a reader that follows (a streaming query, "
        "`follow`, `consume -f`), a minute for others. What waiting doesn't help is told at once.",
    )

    def patience_ms(self, *, following: bool) -> int:
        """Return remote.patience.ms, or the default for the kind of reader, in milliseconds.

        Args:
            following: Whether the reader waits for new records.
        """
        if self.remote_patience_ms >= 0:
            return self.remote_patience_ms
        return FOLLOW_MS if following else READ_MS

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> tuple[Self, dict[str, object]]:
        """Parse the options for remote segments; return them and all other options.

        Args:
            values: {option: value}.

        Raises:
            InvalidRequestError: A value is invalid.
        """
        found, rest = read(REMOTE_KEYS.values(), values)
        for name in ("remote_cache_directory", "remote_keyring"):
            if found.get(name):  # a task has another working directory
                found[name] = os.path.abspath(str(found[name]))
        return cls(**found), rest


REMOTE_KEYS: Final[dict[str, Key]] = keys_of(RemoteOptions)
"""Key -> its description."""
