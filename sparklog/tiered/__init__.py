"""Closed segments in object storage: copied, expired, read back. Source: KIP-405.

- `layout`: what lies in the bucket; `object_store`: buckets, behind one protocol
- `remote_segment`: what is known of a copy; `remote_log_metadata`: of all copies, as a topic
- `copying`: to the bucket, and out of it; `reading`: remote segments; `encryption` of copies
- `archive`: a bucket alone, read as a log; `restoring`: made a log dir again
- `settings`: where a log's copies go; `status`: what lies where
- `target`: `open_store`, the store of a URL; `keyring`: master keys of encrypted copies

The only place that knows fsspec. PROTOCOL.md beside this file says what lies in the bucket, in
which order it is written and removed, and why a reader never sees half of it.
"""

from typing import TYPE_CHECKING

from sparklog.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sparklog.tiered.keyring import Keyring
    from sparklog.tiered.object_store.backoff import Retry
    from sparklog.tiered.object_store.driver import Driver, Upload
    from sparklog.tiered.object_store.object_store import ObjectStore
    from sparklog.tiered.object_store.registry import ObjectStoreType, OpenDriver, RequestLimits
    from sparklog.tiered.object_store.store import Store, StoredObject
    from sparklog.tiered.reading.options import RemoteOptions
    from sparklog.tiered.restoring import Restored, restore
    from sparklog.tiered.target import open_store
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Driver": "sparklog.tiered.object_store.driver",
            "Keyring": "sparklog.tiered.keyring",
            "ObjectStore": "sparklog.tiered.object_store.object_store",
            "ObjectStoreType": "sparklog.tiered.object_store.registry",
            "OpenDriver": "sparklog.tiered.object_store.registry",
            "RemoteOptions": "sparklog.tiered.reading.options",
            "RequestLimits": "sparklog.tiered.object_store.registry",
            "Restored": "sparklog.tiered.restoring",
            "Retry": "sparklog.tiered.object_store.backoff",
            "Store": "sparklog.tiered.object_store.store",
            "StoredObject": "sparklog.tiered.object_store.store",
            "Upload": "sparklog.tiered.object_store.driver",
            "open_store": "sparklog.tiered.target",
            "restore": "sparklog.tiered.restoring",
        },
    )

__all__ = [
    "Driver",
    "Keyring",
    "ObjectStore",
    "ObjectStoreType",
    "OpenDriver",
    "RemoteOptions",
    "RequestLimits",
    "Restored",
    "Retry",
    "Store",
    "StoredObject",
    "Upload",
    "open_store",
    "restore",
]
