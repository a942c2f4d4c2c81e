"""Closed segments in object storage: copying, expiring and reading them. Source: KIP-405.

- `layout`: objects in the bucket; `object_store`: access to buckets through a common protocol
- `remote_segment`: a copy of a segment; `remote_log_metadata`: all copies, as a topic
- `copying`: uploading and deleting copies; `reading`: remote segments; `encryption` of copies
- `archive`: a bucket read as a log, without its log dir; `restoring`: restores it to a log dir
- `settings`: the URL of a log's remote storage; `status`: local and remote segments
- `target`: `open_store`, the store of a URL; `keyring`: master keys of encrypted copies

No other package uses fsspec. PROTOCOL.md in this directory defines the objects in a bucket, the
order in which they are written and deleted, and why a reader never sees an incomplete segment.
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
