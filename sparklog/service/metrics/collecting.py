"""Observes a log once, without a service, a lock, or any write."""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from sparklog.clock import Clock, system_clock
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL
from sparklog.logdir.paths import split_path
from sparklog.opening import holds_home, url_of
from sparklog.service.metrics.observed import LogMetrics
from sparklog.service.metrics.observer import Observer
from sparklog.service.metrics.store_observer import StoreObserver
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.target import open_store


def collect(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: Mapping[str, object] | None = None,
    clock: Clock = system_clock,
) -> LogMetrics:
    """Observe a log once, in log dirs or in a bucket; see `LogObserver.observe`.

    Counts the commits in the entire ledger, in a bucket in the last 1024 entries.

    Args:
        path: Log dirs, or a URL.
        storage_options: Options of fsspec for the store.
        options: Options of `sparklog.open`. Only offsets.retention.minutes and remote.patience.ms
            have an effect.
        clock: The current time.

    Returns:
        The metrics. Parts of a log that can't be read are reported in `errors`.

    Raises:
        InvalidRequestError: There is no log.
        StorageUnavailableError: The store does not answer.

    Cost:
        As of `Observer.observe`. In a bucket a dozen requests, and another for each of these
        entries, each group and each partition, about 256 at the same time.
    """
    remote, rest = RemoteOptions.parse(options or {})
    url = url_of(path)
    if url is not None:
        if not holds_home(url, storage_options, remote):
            raise InvalidRequestError(
                f"{url} contains no log: give the URL of a log in a store, or a log's directory; "
                "an archive contains only segments",
                path=url,
            )
        return StoreObserver(
            os.fspath(path), url, history=True, options=options, clock=clock,
            connect=partial(open_store, url, storage_options),
        ).observe()  # fmt: skip
    directories = split_path(path)
    for directory in directories:
        if not LOCAL.is_dir(directory):
            raise InvalidRequestError(
                f"{directory} does not exist: give the log's directory", path=directory
            )
    # The complete path, as a service reports it; Prometheus distinguishes logs by it.
    return Observer(",".join(directories), history=True, options=rest, clock=clock).observe()
