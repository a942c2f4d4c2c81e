"""`erasures/<topic id>-<request>`: records of erasures that are not complete.

An erasure writes the object when it starts, again when it ends incomplete, and deletes it when it
is complete. A delayed PUT can bring the object back; repeating the request deletes it. Objects of
this kind are only for display.
"""

import contextlib
import json

from sparklog.diskless.names import ERASURES
from sparklog.errors import DataCorruptionError
from sparklog.storage.stored_json import parse_json
from sparklog.storage.unfinished_erasure import UnfinishedErasure
from sparklog.tiered.object_store.store import Store


def note_unfinished(store: Store, begun: UnfinishedErasure) -> UnfinishedErasure:
    """Store the record of an erasure that starts.

    Cost: a GET and a PUT.

    Returns:
        The existing record if the same erasure began before and is incomplete.
    """
    known = _get(store, _name(begun))
    if known is None:
        _put(store, begun)
    return known or begun


def note_ended(store: Store, ended: UnfinishedErasure) -> None:
    """Store which places an erasure left, or delete its record if no place is left.

    Cost: a request.
    """
    if ended.left:
        _put(store, ended)
    else:
        store.delete([_name(ended)])


def unfinished_erasures(store: Store) -> list[UnfinishedErasure]:
    """Return the incomplete erasures, oldest first. Cost: a listing, and a GET for each."""
    records = [_get(store, each.name) for each in store.list(ERASURES)]
    return sorted((r for r in records if r is not None), key=lambda record: record.since_ms)


def _name(begun: UnfinishedErasure) -> str:
    return f"{ERASURES}{begun.topic_id}-{begun.request}"


def _put(store: Store, begun: UnfinishedErasure) -> None:
    store.put(_name(begun), json.dumps(begun.to_dict()).encode())


def _get(store: Store, name: str) -> UnfinishedErasure | None:
    with contextlib.suppress(FileNotFoundError, ValueError, DataCorruptionError):
        return UnfinishedErasure.parse(parse_json(store.get(name)))
    return None
