"""Data keys of staged objects and of inline data in entries.

Each object has its own data key. Tasks don't have the master key: they wrap their data keys by a
transport key that was made for their job, and report them to the driver, which wraps them by the
master key in the entry.
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

_TRANSPORT: Final = "transport"  # a key id that users' key rings don't contain


@dataclass(frozen=True, slots=True)
class TaskKey:
    """The data key of an object that a task encrypted, in the driver's memory.

    The driver wraps the key by the master key for the ledger entry (`rewrap_key`).
    """

    id: str
    size: int
    chunk_bytes: int
    key: bytes = field(repr=False)


def new_transport_key() -> bytes:
    """Return a new key by which the tasks of a job wrap their data keys."""
    return os.urandom(KEY_BYTES)


def transport_ring(key: bytes) -> Keyring:
    """Return the key ring that a task encrypts with."""
    return Keyring({_TRANSPORT: key}, _TRANSPORT)


def new_object_key(ring: Keyring, size: int) -> tuple[DataKey, ObjectKey]:
    """Return a new data key for an object of `size` plain bytes, and the same key wrapped.

    The wrapped key is stored in the ledger entry.
    """
    object_id = new_topic_id()
    data_key, wrapped = new_data_key(ring, object_id)
    return data_key, ObjectKey(object_id, wrapped, size)


def to_text(key: ObjectKey) -> str:
    """Encode a key for a task's report."""
    return json.dumps(key_to_json(key))


def from_text(text: str, transport: bytes | None) -> ObjectKey | TaskKey:
    """Decode the key in a report: wrapped by the master key, or by the job's transport key."""
    key = key_from_json(json.loads(text))
    if key.wrapped.key_id != _TRANSPORT:
        return key
    if transport is None:
        raise InvalidRequestError(
            "the data key of an encrypted chunk is wrapped by the transport key of its job, which "
            "this call does not have: commit the chunks that the staging of the log returned"
        )
    plain = unwrap_key(transport_ring(transport), key.id, key.wrapped)
    return TaskKey(key.id, key.size, key.wrapped.chunk_bytes, plain)


def rewrap_key(ring: Keyring | None, key: ObjectKey | TaskKey) -> ObjectKey:
    """Return the key of an object as a ledger entry stores it, wrapped by the master key.

    A key that is wrapped already is returned unchanged.

    Raises:
        InvalidRequestError: There is no key ring.
    """
    if isinstance(key, ObjectKey):
        return key
    if ring is None:
        raise InvalidRequestError(
            "encrypted chunks can't be committed, because the log was opened without its key ring: "
            "open it with option remote.keyring"
        )
    return ObjectKey(key.id, wrap_key(ring, key.key, key.id, key.chunk_bytes), key.size)


def check_sealed(keys: Mapping[str, ObjectKey], ring: Keyring | None, home: str) -> None:
    """Reject writing plain records to a log with encrypted objects.

    Args:
        keys: `DisklessState.keys`.

    Raises:
        InvalidRequestError: There is no key ring, and objects of the log are encrypted.
    """
    if ring is not None or not keys:
        return
    key_id = next(reversed(list(keys.values()))).wrapped.key_id
    raise InvalidRequestError(
        f"{home} is encrypted (key {key_id!r}), and this writer has no key ring; no record was "
        "written. Open the log with option remote.keyring, the file that contains this key",
        path=home,
    )
