"""A look at a log, once: without a service, a lock, or anything written."""

import os
from collections.abc import Mapping
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
    """Look at a log once, in log dirs or in a store; see `LogObserver.observe`.

    Its commits are those of the whole ledger, in a store of its last 1024 entries.
    Args: storage_options: how its store is reached (fsspec's). options: those of `sparklog.open`,
        of which offsets.retention.minutes and remote.patience.ms count here.
    Raises: InvalidRequestError: there is no log. StorageUnavailableError: nor does its store say
        so. What can't be read of a log is told in `errors`.
    Cost: that of `Observer.observe`; in a store a dozen requests, one for each of those entries,
        for each group and partition, some 256 of them at the same time.
    """
    remote, rest = RemoteOptions.parse(options or {})
    url = url_of(path)
    if url is not None:
        if not holds_home(url, storage_options, remote):
            raise InvalidRequestError(
                f"{url} holds no log: give the URL of a log in a store, or a log's directory; an "
                "archive holds segments alone",
                path=url,
            )
        return StoreObserver(
            os.fspath(path), url, history=True, options=options, storage_options=storage_options,
            clock=clock, opening=open_store,
        ).observe()  # fmt: skip
    directories = split_path(path)
    for directory in directories:
        if not LOCAL.is_dir(directory):
            raise InvalidRequestError(
                f"{directory} does not exist: give the log's directory", path=directory
            )
    # By its whole path, as a service tells it: Prometheus knows logs apart by that.
    return Observer(",".join(directories), history=True, options=rest, clock=clock).observe()
