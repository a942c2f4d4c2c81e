"""`open_store`: the store behind a URL. The only place that makes fsspec's file systems."""

import os
from collections.abc import Mapping
from typing import Any, Final

from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.tiered.object_store.backoff import Retry
from sparklog.tiered.object_store.driver import Driver
from sparklog.tiered.object_store.failures import secrets_in, without
from sparklog.tiered.object_store.file_driver import LocalDriver
from sparklog.tiered.object_store.fsspec_driver import Connection, FsspecDriver
from sparklog.tiered.object_store.hdfs_driver import HdfsDriver
from sparklog.tiered.object_store.memory_driver import MemoryDriver
from sparklog.tiered.object_store.object_store import (
    PARALLEL,
    PART_BYTES,
    SMALL_PARALLEL,
    ObjectStore,
)
from sparklog.tiered.object_store.s3_driver import PART_BYTES_MIN, S3Driver
from sparklog.tiered.object_store.s3_driver import options as s3_options
from sparklog.tiered.settings import RemoteSettings

TIMEOUT_MS: Final = 120_000
_ONE_SLASH: Final = ("file", "local", "memory")  # may have one
_EXTRA: Final = {"s3": "sparklog[s3]", "s3a": "sparklog[s3]"}
_PACKAGE: Final = {"gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs"}
_SAME: Final = {"s3a": "s3", "gcs": "gs"}
_DRIVERS: Final = {"memory": MemoryDriver, "hdfs": HdfsDriver}


def open_store(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    retry: Retry | None = None,
    part_bytes: int = PART_BYTES,
    parallel: int = PARALLEL,
    timeout_ms: int = TIMEOUT_MS,
) -> ObjectStore:
    """Return the store of objects below `url`; no request is made yet.

    Args:
        url: as fsspec has them: s3://bucket/prefix, file:///directory, memory://name, gs://, ...
        storage_options: what fsspec's file system takes: endpoint_url, key, secret, ... They are
            kept in memory only, and no message shows them.
        part_bytes, parallel: see `ObjectStore`. S3 wants 5 MiB or more.
        timeout_ms: of one request to S3, in whole seconds; then it is tried again.

    Raises: InvalidRequestError: no such URL, a package is missing, options that it doesn't know.
    """
    if url.rstrip("/") != "memory:":
        RemoteSettings(url)
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise InvalidRequestError(
            f"storage_options of {url}: want a dict of fsspec's options, such as "
            '{"endpoint_url": "http://..."}',
            path=url,
        )
    given = dict(storage_options or {})
    protocol = url.partition(":")[0]
    if protocol not in _ONE_SLASH and "://" not in url:  # fsspec takes it for a local path
        raise InvalidRequestError(
            f"{url!r}: want an fsspec URL with two slashes, such as s3://bucket/prefix; a "
            "directory of this machine is file:///directory",
            path=url,
        )
    if "::" in url:
        raise InvalidRequestError(
            f"{url}: no chains of URLs; sparklog keeps a cache of its own", path=url
        )
    if protocol in ("file", "local"):
        path = url.partition(":")[2].removeprefix("//")  # Hadoop writes file:/directory
        driver: Driver = LocalDriver(os.path.abspath(path))
    else:
        driver = _remote(url.rstrip("/"), protocol, given, parallel, timeout_ms)
    if isinstance(driver, S3Driver) and part_bytes < PART_BYTES_MIN:
        raise InvalidRequestError(f"part_bytes={part_bytes}: S3 wants {PART_BYTES_MIN} or more")
    return ObjectStore(
        driver,
        retry=retry,
        part_bytes=part_bytes,
        parallel=parallel,
        secrets=secrets_in(given),
    )


def _remote(
    url: str, protocol: str, given: dict[str, Any], parallel: int, timeout_ms: int
) -> Driver:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise _missing(url, _EXTRA.get(protocol, "sparklog[tiered]")) from None
    is_s3 = protocol in ("s3", "s3a")

    def make() -> tuple[Any, str]:
        # Our own instance, not fsspec's shared one: its retries are changed, and a listing that
        # somebody else cached must not be ours.
        asked = s3_options(given, max(SMALL_PARALLEL, 2 * parallel)) if is_s3 else given
        made: tuple[Any, str] = url_to_fs(
            url, **{**asked, "use_listings_cache": False, "skip_instance_cache": True}
        )
        return made

    try:
        connection = Connection(make, {**given, "protocol": _SAME.get(protocol, protocol)})
    except ImportError as error:
        raise _missing(url, _EXTRA.get(protocol) or _PACKAGE.get(protocol) or str(error)) from None
    except (TypeError, ValueError, KeyError) as error:
        words = without(str(error), secrets_in(given))
        raise InvalidRequestError(
            f"can't open {url}: {words}; correct the URL or the storage options", path=url
        ) from None
    except OSError as error:  # a library that isn't there, a server that refuses
        words = without(str(error), secrets_in(given)).partition("\n")[0]
        raise StorageUnavailableError(
            f"can't open {url}: {words}; correct the URL, or install what fsspec needs for "
            f"{protocol}",
            path=url,
        ) from error
    if is_s3:
        return S3Driver(url, connection, timeout_ms)
    return _DRIVERS.get(protocol, FsspecDriver)(url, connection)


def _missing(url: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"{url}: a package is missing, run: pip install '{what}'", path=url)
