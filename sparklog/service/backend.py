"""How a service opens and observes a log. The only module here that depends on the log's home."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.clock import Clock
from sparklog.errors import InvalidRequestError
from sparklog.fs import FileSystem
from sparklog.service.log_dir_cleaner import Map
from sparklog.service.log_dir_upkeep import LogDirOpener, TierOptions
from sparklog.service.metrics.observed import LogObserver
from sparklog.service.metrics.observer import Observer
from sparklog.service.metrics.store_observer import StoreObserver
from sparklog.service.options import ServiceOptions
from sparklog.service.store_upkeep import StoreOpener
from sparklog.storage.upkeep import OpenUpkeep


@dataclass(frozen=True, slots=True)
class ServiceBackend:
    """How a log is opened for its background work, and observed for its metrics."""

    open_upkeep: OpenUpkeep
    observer: LogObserver


def service_backend(
    path: str,
    url: str | None,
    *,
    options: ServiceOptions,
    log_options: Mapping[str, Any],
    tier: TierOptions,
    map: Map | None,
    stopping: Callable[[], bool],
    fs: FileSystem,
    clock: Clock,
) -> ServiceBackend:
    """Return the backend for a log's home; does not open the log yet.

    Args:
        url: URL of the bucket that is the log's home, None for log dirs
            (`sparklog.opening.url_of`).

    Raises: InvalidRequestError: an argument is not supported for a log in a bucket.
    """
    if url is None:
        opener = LogDirOpener(
            path=path, options=options, log_options=log_options, tier=tier, map=map,
            stopping=stopping, fs=fs, clock=clock,
        )  # fmt: skip
        return ServiceBackend(opener, Observer(path, options=log_options, fs=fs, clock=clock))
    for name, given in (("remote", tier.url), ("take_over", tier.take_over), ("map", map)):
        if given:
            raise InvalidRequestError(
                f"{url} is a log whose home is the store itself: leave out {name}, which is for a "
                "log dir",
                path=url,
            )
    in_store = StoreOpener(
        url=url, options=options, log_options=log_options, storage_options=tier.storage_options,
        keyring=tier.keyring, stopping=stopping, clock=clock, opening=tier.opening,
    )  # fmt: skip
    observer = StoreObserver(
        path, url, options=log_options, storage_options=tier.storage_options, clock=clock,
        opening=tier.opening,
    )  # fmt: skip
    return ServiceBackend(in_store, observer)
