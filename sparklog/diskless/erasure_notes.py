"""`erasures/<topic id>-<request>`: an erasure that began and isn't complete, for those who look.

Put when one begins, again when it ends with something left, deleted when it is complete. A late put
brings a note back, and the same request again takes it away; nothing else goes by it.
"""

import contextlib
import json

from sparklog.diskless.names import ERASURES
from sparklog.errors import DataCorruptionError
from sparklog.storage.bounded_json import parse_json
from sparklog.storage.unfinished_erasure import UnfinishedErasure
from sparklog.tiered.object_store.store import Store


def note_unfinished(store: Store, begun: UnfinishedErasure) -> UnfinishedErasure:
    """Note that an erasure begins. Cost: a get, a put.

    Returns: it, as it was noted when it began before and left something.
    """
    known = _get(store, _name(begun))
    if known is None:
        _put(store, begun)
    return known or begun


def note_ended(store: Store, ended: UnfinishedErasure) -> None:
    """Note what an erasure left; nothing: it is complete. Cost: a request."""
    if ended.left:
        _put(store, ended)
    else:
        store.delete([_name(ended)])


def unfinished_erasures(store: Store) -> list[UnfinishedErasure]:
    """Return the erasures that aren't complete, the oldest first. Cost: a list, a get for each."""
    found = [_get(store, each.name) for each in store.list(ERASURES)]
    return sorted((one for one in found if one is not None), key=lambda one: one.since_ms)


def _name(begun: UnfinishedErasure) -> str:
    return f"{ERASURES}{begun.topic_id}-{begun.request}"


def _put(store: Store, begun: UnfinishedErasure) -> None:
    store.put(_name(begun), json.dumps(begun.to_dict()).encode())


def _get(store: Store, name: str) -> UnfinishedErasure | None:
    with contextlib.suppress(FileNotFoundError, ValueError, DataCorruptionError):
        return UnfinishedErasure.parse(parse_json(store.get(name)))
    return None
