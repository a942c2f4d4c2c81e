"""`sparklog.remote`: the URL of a log's remote storage, and its log id. Never credentials.

Those come with `storage_options` from whoever opens the log, or from the store's own places
(environment, profiles, instance roles).
"""

import os
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from sparklog.errors import InvalidRequestError
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.storage.checksummed_json import seal, unseal

REMOTE_NAME: Final = "sparklog.remote"
_CURE: Final = (
    "give the URL anew, once: `sparklog serve PATH --remote URL --take-over`, or the service's "
    "remote=URL, take_over=True"
)


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """The target of a log: an fsspec URL, `s3://bucket/prefix`.

    `log_id` and `tokens` tell it from other logs there (layout/topic_owners.py); none until a
    service ran. `key_id`: of the master key under which copies are encrypted; "" if they
    aren't, None if nobody has looked yet. So a service without its key ring knows that
    it must not copy.
    """

    url: str
    log_id: str = ""
    tokens: tuple[str, ...] = ()
    key_id: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if not parts.scheme or not (parts.netloc or parts.path):
            raise InvalidRequestError(
                f"{self.url!r}: want an fsspec URL, such as s3://bucket/prefix or "
                "file:///directory",
                path=self.url,
            )
        if parts.username or parts.password or parts.query:
            raise InvalidRequestError(
                f"{parts.scheme}://...: the URL is kept with the log, so it holds no "
                "credentials; give them as storage options or by the environment"
            )


def read_settings(fs: FileSystem, home: str) -> RemoteSettings | None:
    """Return what the log says, None if it has no remote storage. Raises DataCorruptionError."""
    path = os.path.join(home, REMOTE_NAME)
    try:
        raw = read_bytes(fs, path)
    except FileNotFoundError:
        return None
    found = unseal("remote", raw, path=path, cure=_CURE)
    tokens = tuple(str(token) for token in found.get("tokens", ()))
    key_id = found.get("key_id")
    return RemoteSettings(
        str(found["url"]), str(found.get("log_id", "")), tokens,
        None if key_id is None else str(key_id),
    )  # fmt: skip


def write_settings(fs: FileSystem, home: str, settings: RemoteSettings) -> None:
    """Keep them, durably."""
    path = os.path.join(home, REMOTE_NAME)
    content: dict[str, Any] = {
        "url": settings.url, "log_id": settings.log_id, "tokens": list(settings.tokens),
    }  # fmt: skip
    if settings.key_id is not None:
        content["key_id"] = settings.key_id
    write_durably(fs, path, seal("remote", content, indent=2))
