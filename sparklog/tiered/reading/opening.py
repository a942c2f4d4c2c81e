"""Opens the objects of remote segments, with caches, keys and retries according to the options."""

import os
from collections.abc import Callable

from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.block_cache import DIRECTORY_NAME, BlockCache
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.reading.store_retry import StoreRetry


def open_objects(
    connect: Callable[[], Store],
    options: RemoteOptions,
    stopped: Callable[[], bool] = lambda: False,
) -> RemoteObjects:
    """Return the objects of the store that `connect` opens at their first use.

    Args: stopped: ends waits for an unavailable store when it returns True.
    Raises: InvalidRequestError: invalid key ring.
    """
    directory = options.remote_cache_directory
    cache = BlockCache(
        options.remote_cache_memory_bytes,
        directory=os.path.join(directory, DIRECTORY_NAME) if directory else None,
        disk_bytes=options.remote_cache_disk_bytes if directory else 0,
    )
    keys = Keyring.load(options.remote_keyring) if options.remote_keyring else None
    retry = StoreRetry(
        options.patience_ms(following=False),
        follow_timeout_ms=options.patience_ms(following=True),
        stopped=stopped,
    )
    return RemoteObjects(connect, cache, keys, threads=options.remote_fetch_threads, retry=retry)
