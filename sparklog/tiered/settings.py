"""`sparklog.remote`: the URL of a log's remote storage, and its log id. Never credentials.

The file is written twice, as `sparklog.remote` and then as `sparklog.remote-copy`, because no other
file of the log contains the URL, and without it no remote segment can be read. Credentials are
passed as `storage_options` when the log is opened, or come from the provider's credential chain
(environment, profiles, instance roles).
"""

import os
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.storage.stored_json import seal, unseal

REMOTE_NAME: Final = "sparklog.remote"
SPARE_NAME: Final = "sparklog.remote-copy"


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """The settings of a log's remote storage.

    Attributes:
        url: The fsspec URL: `s3://bucket/prefix`.
        log_id: The id of the log among other logs there (layout/topic_owners.py); "" until a
            service ran.
        tokens: The tokens by which the log recognizes its own owner object there; empty until a
            service ran.
        key_id: The id of the master key that encrypts copies. "" means plain copies, None that no
            service has determined it yet. The id prevents a service without key ring from copying
            plain segments of an encrypted log.
    """

    url: str
    log_id: str = ""
    tokens: tuple[str, ...] = ()
    key_id: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if not parts.scheme or not (parts.netloc or parts.path):
            raise InvalidRequestError(
                f"{self.url!r} is not the URL of an object store; use an fsspec URL such as "
                "s3://bucket/prefix or file:///directory",
                path=self.url,
            )
        if parts.username or parts.password or parts.query:
            raise InvalidRequestError(
                f"{parts.scheme}://...: the URL is stored in the log, so it must not contain "
                "credentials; pass them as storage options or by the environment"
            )


@dataclass(frozen=True, slots=True)
class SettingsFault:
    """A damaged or missing file with the settings of remote storage.

    The settings are stored in two files. `is_repairable` is True if the other file is readable.
    """

    path: str
    what: str
    is_repairable: bool


def read_settings(fs: FileSystem, home: str) -> RemoteSettings | None:
    """Return the settings, or None for a log without remote storage.

    If the file is missing or damaged, its copy is read.

    Raises:
        DataCorruptionError: Neither of the two files can be read.
    """
    try:
        settings = _read(fs, home, REMOTE_NAME)
    except DataCorruptionError:
        spare = _spare(fs, home)
        if spare is None:
            raise
        return spare
    return _spare(fs, home) if settings is None else settings


def settings_fault(fs: FileSystem, home: str) -> SettingsFault | None:
    """Return the fault of the settings' files, or None.

    A log of an earlier version has no copy of the file. If both files are missing, only the rest of
    the log shows whether they should exist.
    """
    faults: dict[str, str | None] = {}
    for name in (REMOTE_NAME, SPARE_NAME):
        try:
            faults[name] = None if _read(fs, home, name) is not None else "the file is missing"
        except DataCorruptionError as error:
            faults[name] = error.reason
    first, spare = faults[REMOTE_NAME], faults[SPARE_NAME]
    missing = not fs.exists(os.path.join(home, SPARE_NAME))
    if first is None:
        if spare is None or missing:
            return None
        return SettingsFault(os.path.join(home, SPARE_NAME), spare, is_repairable=True)
    if missing and not fs.exists(os.path.join(home, REMOTE_NAME)):
        return None
    return SettingsFault(os.path.join(home, REMOTE_NAME), first, is_repairable=spare is None)


def restore_settings(fs: FileSystem, home: str) -> None:
    """Write both files again from the readable file."""
    settings = read_settings(fs, home)
    if settings is not None:
        write_settings(fs, home, settings)


def settings_missing(home: str) -> DataCorruptionError:
    """Return the error for a log with copies but without the URL of the remote storage."""
    return DataCorruptionError(
        f"the log has segments in remote storage, but this file, which names the URL, is missing; "
        f"{_cure(home)}",
        path=os.path.join(home, REMOTE_NAME),
    )


def _cure(home: str) -> str:
    return f"stop the service and name the URL again: `sparklog tier rebuild {home} --remote URL`"


def _spare(fs: FileSystem, home: str) -> RemoteSettings | None:
    try:
        return _read(fs, home, SPARE_NAME)
    except DataCorruptionError:
        return None


def _read(fs: FileSystem, home: str, name: str) -> RemoteSettings | None:
    path = os.path.join(home, name)
    try:
        raw = read_bytes(fs, path)
    except FileNotFoundError:
        return None
    content = unseal("remote", raw, path=path, cure=_cure(home))
    tokens = tuple(str(token) for token in content.get("tokens", ()))
    key_id = content.get("key_id")
    return RemoteSettings(
        str(content["url"]), str(content.get("log_id", "")), tokens,
        None if key_id is None else str(key_id),
    )  # fmt: skip


def write_settings(fs: FileSystem, home: str, settings: RemoteSettings) -> None:
    """Write both files, durably."""
    content: dict[str, Any] = {
        "url": settings.url, "log_id": settings.log_id, "tokens": list(settings.tokens),
    }  # fmt: skip
    if settings.key_id is not None:
        content["key_id"] = settings.key_id
    for name in (REMOTE_NAME, SPARE_NAME):
        write_durably(fs, os.path.join(home, name), seal("remote", content, indent=2))
