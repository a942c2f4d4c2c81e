"""`open_store`: the object store of a URL."""

from collections.abc import Mapping
from typing import Any, Final

from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.tiered.object_store.backoff import Retry
from sparklog.tiered.object_store.driver import Driver
from sparklog.tiered.object_store.failures import secrets_in, without
from sparklog.tiered.object_store.object_store import (
    PARALLEL,
    PART_BYTES,
    SMALL_PARALLEL,
    ObjectStore,
)
from sparklog.tiered.object_store.registry import (
    ObjectStoreType,
    RequestLimits,
    scheme_of,
    store_type,
)
from sparklog.tiered.settings import RemoteSettings

TIMEOUT_MS: Final = 120_000


def open_store(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    retry: Retry | None = None,
    part_bytes: int = PART_BYTES,
    parallel: int = PARALLEL,
    timeout_ms: int = TIMEOUT_MS,
) -> ObjectStore:
    """Return the store of objects below a URL, without a request.

    Args:
        url: As in fsspec: s3://bucket/prefix, file:///directory, memory://name, gs://, ...
        storage_options: Options of fsspec's file system: endpoint_url, key, secret, ... The options
            are stored in memory only, and no message shows them.
        retry: The number of attempts, and the pauses between them.
        part_bytes: The size in bytes of a part of a large object. S3 requires 5 MiB or more.
        parallel: The number of parts that are sent at the same time.
        timeout_ms: The time after which a request to S3 is sent again, rounded to whole seconds.

    Raises:
        InvalidRequestError: The URL is invalid, a package is missing, or an option is unknown.

    Examples:
        >>> from sparklog.tiered import open_store
        >>> store = open_store("s3://bucket/prefix", {"endpoint_url": "http://localhost:9000"})
        >>> store.url
        's3://bucket/prefix'
    """
    if url.rstrip("/") != "memory:":
        RemoteSettings(url)
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise InvalidRequestError(
            f"storage_options of {url} must be a dict of fsspec's options, such as "
            '{"endpoint_url": "http://..."}',
            path=url,
        )
    options = dict(storage_options or {})
    if "::" in url:
        raise InvalidRequestError(
            f"{url}: chained URLs are not supported; sparklog has a cache of its own", path=url
        )
    kind = store_type(scheme_of(url))
    if kind.needs_two_slashes and "://" not in url:  # fsspec would use a local path
        raise InvalidRequestError(
            f"{url!r}: an fsspec URL has two slashes, such as s3://bucket/prefix; a "
            "directory of this machine is file:///directory",
            path=url,
        )
    if part_bytes < kind.part_bytes_min:
        raise InvalidRequestError(
            f"part_bytes={part_bytes}: {scheme_of(url)} requires {kind.part_bytes_min} or more"
        )
    limits = RequestLimits(parallel=max(SMALL_PARALLEL, 2 * parallel), timeout_ms=timeout_ms)
    return ObjectStore(
        _open_driver(kind, url.rstrip("/"), options, limits),
        retry=retry,
        part_bytes=part_bytes,
        parallel=parallel,
        secrets=secrets_in(options),
    )


def _open_driver(
    kind: ObjectStoreType, url: str, given: dict[str, Any], limits: RequestLimits
) -> Driver:
    try:
        return kind.open(url, given, limits)
    except ImportError as error:
        package = kind.package
        if (error.name or "").startswith("fsspec") and not package.startswith("sparklog["):
            package = "sparklog[tiered]"
        raise InvalidRequestError(
            f"{url}: a package is missing, run: pip install '{package or error}'", path=url
        ) from None
    except (TypeError, ValueError, KeyError) as error:
        # Libraries put the options that they reject into their messages.
        words = without(str(error), secrets_in(given))
        raise InvalidRequestError(
            f"can't open {url}: {words}; correct the URL or the storage options", path=url
        ) from None
    except OSError as error:  # a missing library, or a server that refuses connections
        words = without(str(error), secrets_in(given)).partition("\n")[0]
        raise StorageUnavailableError(
            f"can't open {url}: {words}; correct the URL, or install what fsspec needs for "
            f"{scheme_of(url)}",
            path=url,
        ) from error
