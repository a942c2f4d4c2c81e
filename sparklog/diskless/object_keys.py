"""Encryption of what isn't a segment yet: staged objects, and data that ride in an entry.

Each object has a data key of its own. Tasks know no master key: they hand the data keys that they
made to the driver, wrapped by a transport key that was made for the job alone, and the driver wraps
them by the master key, into the entry.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.diskless.entries import ObjectKey, key_from_json, key_to_json
from sparklog.errors import InvalidRequestError
from sparklog.log.topic_names import new_topic_id
from sparklog.tiered.encryption.envelope import DataKey, new_data_key, unwrap_key, wrap_key
from sparklog.tiered.keyring import KEY_BYTES, Keyring

_TRANSPORT: Final = "transport"  # a key's id; no key ring of a user's has this one


@dataclass(frozen=True, slots=True)
class TaskKey:
    """The data key of an object that a task sealed, as the driver holds it until it wraps it."""

    id: str
    size: int
    chunk_bytes: int
    key: bytes = field(repr=False)


def new_transport_key() -> bytes:
    """Return what the tasks of one job wrap their data keys by."""
    return os.urandom(KEY_BYTES)


def transport_ring(key: bytes) -> Keyring:
    """Return the ring of that key: what a task seals with."""
    return Keyring({_TRANSPORT: key}, _TRANSPORT)


def new_object_key(ring: Keyring, size: int) -> tuple[DataKey, ObjectKey]:
    """Return a fresh data key for an object of `size` plain bytes, and how an entry names it."""
    object_id = new_topic_id()
    data_key, wrapped = new_data_key(ring, object_id)
    return data_key, ObjectKey(object_id, wrapped, size)


def to_text(key: ObjectKey) -> str:
    """Return a key as a task reports it."""
    return json.dumps(key_to_json(key))


def from_text(text: str, transport: bytes | None) -> ObjectKey | TaskKey:
    """Return the key of a report: the master key wrapped it already, or the job's transport key."""
    key = key_from_json(json.loads(text))
    if key.wrapped.key_id != _TRANSPORT:
        return key
    if transport is None:
        raise InvalidRequestError(
            "what tasks have sealed came without the job's transport key: commit what the log's "
            "own staging has gathered"
        )
    plain = unwrap_key(transport_ring(transport), key.id, key.wrapped)
    return TaskKey(key.id, key.size, key.wrapped.chunk_bytes, plain)


def rewrap_key(ring: Keyring | None, key: ObjectKey | TaskKey) -> ObjectKey:
    """Return a key as the entry names it: under the master key.

    Raises: InvalidRequestError: there is no key ring.
    """
    if isinstance(key, ObjectKey):
        return key
    if ring is None:
        raise InvalidRequestError(
            "what tasks have sealed can't be committed by a log that was opened without its key "
            "ring: open it with option remote.keyring"
        )
    return ObjectKey(key.id, wrap_key(ring, key.key, key.id, key.chunk_bytes), key.size)


def check_sealed(keys: Mapping[str, ObjectKey], ring: Keyring | None, home: str) -> None:
    """Refuse to write plain records into a log whose newest objects are encrypted.

    Args: keys: `DisklessState.keys`. Raises: InvalidRequestError.
    """
    if ring is not None or not keys:
        return
    key_id = next(reversed(list(keys.values()))).wrapped.key_id
    raise InvalidRequestError(
        f"{home} is encrypted (key {key_id!r}), and this writer has no key ring; nothing was "
        "written. Open it with option remote.keyring, the file with that key",
        path=home,
    )
