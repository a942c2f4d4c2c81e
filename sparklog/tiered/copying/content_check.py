"""Checks the bytes of a copied segment's objects, and records damaged copies.

The bytes are compared with the checksums of the manifest. A copy that is damaged, of records that
local segments still contain, is recorded as `sparklog.damaged-<segment id>` in the first log dir by
`tier verify` and local retention. While the file exists, local retention does not delete the
segments. The next round of the service copies the local segments again and removes the file. Each
copy has a separate file, so two processes never overwrite each other's findings.
"""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import crc32c

from sparklog.errors import DataCorruptionError
from sparklog.fs import FileSystem, write_durably
from sparklog.tiered.encryption.envelope import open_data_key
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import (
    MANIFEST_BYTES_MAX,
    PARTS,
    Manifest,
    log_object,
    manifest_object,
    parse,
    part,
)
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.remote_segment import RemoteSegment

Fault = tuple[str, str, int | None]
"""(object, what is wrong, position in bytes or None)."""

_PIECE_BYTES: Final = 8 << 20
_DAMAGED: Final = "sparklog.damaged-"


def faults_of(
    store: Store,
    copy: RemoteSegment,
    keys: Keyring | None = None,
    *,
    ask: Callable[[Callable[[], bytes]], bytes] = lambda get: get(),
) -> Iterator[Fault]:
    """Yield the faults of a copy: of the manifest, the indexes and the log.

    Args:
        store: The bucket.
        copy: The copy.
        keys: Decrypts the indexes of encrypted copies. Without keys, only logs are compared.
        ask: Sends each request, and may repeat the request.

    Cost: a GET for the manifest, and a GET per 8 MiB of the log.

    Raises:
        StorageUnavailableError: The bucket can't be read.
        InvalidRequestError: The key ring lacks the copy's key.
    """
    name = manifest_object(copy)
    try:
        manifest, body = parse(ask(lambda: store.get(name, limit=MANIFEST_BYTES_MAX)), path=name)
        if _identity(manifest.segment) != _identity(copy):
            yield name, "the object is another segment's manifest", None
            return
        manifest_parts(manifest, body, keys, segment_id=copy.id, path=name)
        name = log_object(copy)
        yield from ((name, fault, at) for fault, at in _log_faults(store, manifest, ask))
    except FileNotFoundError:
        yield name, "the object is missing", None
    except DataCorruptionError as error:
        yield name, error.reason, error.position


def manifest_parts(
    manifest: Manifest, body: bytes, keys: Keyring | None, *, segment_id: str, path: str
) -> dict[str, bytes] | None:
    """Return a manifest's small files, decrypted; None if a key ring is needed and missing.

    Raises:
        DataCorruptionError: A checksum is wrong.
        InvalidRequestError: The key ring lacks the segment's key.
    """
    if manifest.encryption is not None:
        if keys is None:
            return None
        body = open_data_key(keys, segment_id, manifest.encryption).open_body(body, path=path)
    parts = {name: part(manifest, body, name) for name in PARTS}
    return {name: content for name, content in parts.items() if content is not None}


def _identity(segment: RemoteSegment) -> tuple[Any, ...]:
    return segment.key, segment.id, segment.base, segment.end, segment.size


def _log_faults(
    store: Store, manifest: Manifest, ask: Callable[[Callable[[], bytes]], bytes]
) -> Iterator[tuple[str, int | None]]:
    name, size, crc = manifest.log_name, manifest.stored_size, 0
    for at in range(0, size, _PIECE_BYTES):
        end = min(at + _PIECE_BYTES, size)
        data = ask(partial(store.get, name, at, end))
        if len(data) < end - at:
            yield f"the log has {at + len(data)} bytes, but {size} in the manifest", at + len(data)
            return
        crc = crc32c.crc32c(data, crc)
    if crc != manifest.stored_crc32c:
        yield f"the CRC-32C is {crc}, but {manifest.stored_crc32c} in the manifest", None


def note_damaged(fs: FileSystem, home: str, segment_id: str, what: str) -> None:
    """Record that a copy is damaged; durable on return."""
    path = _path(home, segment_id)
    if not fs.exists(path):
        write_durably(fs, path, json.dumps({"damage": what}).encode() + b"\n")


def damaged_copies(fs: FileSystem, home: str) -> set[str]:
    """Return the segment ids of the copies that were found damaged. Cost: a directory listing."""
    names = (name for name in fs.listdir(home) if name.startswith(_DAMAGED))
    return {name.removeprefix(_DAMAGED) for name in names if not name.endswith(".tmp")}


def forget_damaged(fs: FileSystem, home: str, segment_id: str) -> None:
    """Remove the record of a copy, which was replaced or deleted."""
    if fs.exists(_path(home, segment_id)):
        fs.unlink(_path(home, segment_id))


def _path(home: str, segment_id: str) -> str:
    return os.path.join(home, _DAMAGED + segment_id)
