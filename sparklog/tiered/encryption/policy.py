"""Whether a log's copies are encrypted, from the log's settings or the bucket.

The key id is stored in `sparklog.remote`. A log of an earlier version, or a log that lost this
file, has none there: then the newest manifests are examined.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from sparklog.errors import DataCorruptionError, InvalidRequestError, UnsupportedVersionError
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import MANIFEST_BYTES_MAX, Manifest, parse
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.settings import RemoteSettings


def key_id_of(manifest: Manifest) -> str:
    """Return the id of the master key of a copy; "" for a plain copy."""
    return "" if manifest.encryption is None else manifest.encryption.key_id


def key_id_in(store: Store, names: Sequence[str]) -> str:
    """Return the id of a master key of the copies with these manifests; "" if all are plain.

    Cost: a GET per manifest.

    Raises:
        StorageUnavailableError: The bucket can't be read.
    """
    for name, raw in zip(names, store.get_many(names, limit=MANIFEST_BYTES_MAX), strict=True):
        try:
            if isinstance(raw, Exception):
                raise raw
            key_id = key_id_of(parse(raw, path=name)[0])
        except (FileNotFoundError, DataCorruptionError, UnsupportedVersionError):
            continue
        if key_id:
            return key_id
    return ""


def with_key_id(
    settings: RemoteSettings,
    ring: Keyring | None,
    *,
    plain: bool,
    look: Callable[[], str],
) -> RemoteSettings:
    """Return the log's settings with the id of the key that encrypts new copies.

    Args:
        settings: The log's settings.
        ring: The key ring of the service, if it has one.
        plain: Whether the owner turns encryption off.
        look: Determines the key id from the bucket. Called only if the settings have none.
    """
    if ring is not None:
        return replace(settings, key_id=ring.current)
    if plain:
        return replace(settings, key_id="")
    if settings.key_id is None:
        return replace(settings, key_id=look())
    return settings


def check_keyring(ring: Keyring | None, *, plain: bool) -> None:
    """Raise InvalidRequestError if both a key ring and plain copies are requested."""
    if ring is not None and plain:
        raise InvalidRequestError(
            "a key ring and plain copies exclude each other: pass either keyring or plain"
        )


def refusal(settings: RemoteSettings | None, ring: Keyring | None) -> str | None:
    """Return why no segment can be copied, or None if segments can be copied.

    The reason is that copies are encrypted, and the service has no key ring.
    """
    if ring is not None or settings is None or not settings.key_id:
        return None
    return (
        f"no segment is copied: this log's copies are encrypted (key {settings.key_id!r}), and the "
        "service has no key ring: start the service with the key ring (sparklog serve PATH "
        "--keyring FILE, or Service(path, keyring=...)); or, for copies that are not encrypted "
        "from now on, once with --plain, or plain=True"
    )
