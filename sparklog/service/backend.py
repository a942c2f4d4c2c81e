"""Opens and observes a log for the service, in log dirs or in a bucket.

Other modules of the service don't depend on the log's home.
"""

from dataclasses import dataclass
from functools import partial

from sparklog.config import LogOptions
from sparklog.diskless.home import DisklessHome, open_log
from sparklog.diskless.lease import Tenure
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.upkeep import DisklessUpkeep
from sparklog.errors import InvalidRequestError
from sparklog.log.log import home_of
from sparklog.service.log_dir_upkeep import open_log_dirs
from sparklog.service.metrics.observed import LogObserver
from sparklog.service.metrics.observer import Observer
from sparklog.service.metrics.store_observer import StoreObserver
from sparklog.service.options import ServiceArguments, ServiceOptions
from sparklog.storage.upkeep import OpenUpkeep
from sparklog.tiered.reading.options import RemoteOptions


@dataclass(frozen=True, slots=True)
class ServiceBackend:
    """The functions of a log's home that a service needs.

    Attributes:
        open_upkeep: Opens the log for background work; called again after another log has replaced
            the log.
        observer: Observes the log for metrics.
    """

    open_upkeep: OpenUpkeep
    observer: LogObserver


def service_backend(arguments: ServiceArguments) -> ServiceBackend:
    """Return the backend for a log's home; does not open the log yet.

    Raises:
        InvalidRequestError: An argument is not supported for a log in a bucket.
    """
    path, url, tier = arguments.path, arguments.url, arguments.tier
    if url is None:
        dirs = Observer(path, options=arguments.log_options, fs=arguments.fs, clock=arguments.clock)
        return ServiceBackend(partial(open_log_dirs, arguments), dirs)
    for name, given in (
        ("remote", tier.url), ("take_over", tier.take_over), ("map", arguments.map)
    ):  # fmt: skip
        if given:
            raise InvalidRequestError(
                f"{url} is a log in a bucket, and {name} is only for log dirs: leave out {name}",
                path=url,
            )
    observer = StoreObserver(
        path, url, options=arguments.log_options, clock=arguments.clock,
        connect=partial(tier.opening, url, tier.storage_options),
    )  # fmt: skip
    return ServiceBackend(partial(_open_bucket, arguments, url, Tenure()), observer)


def _open_bucket(arguments: ServiceArguments, url: str, tenure: Tenure) -> DisklessUpkeep:
    """Open a log in a bucket. Raises the errors of `sparklog.open`."""
    remote, rest = RemoteOptions.parse(arguments.log_options)
    tier = arguments.tier
    log = open_log(
        url, mode="rw", options=rest, remote=remote, clock=arguments.clock,
        stopped=arguments.stopping, store=tier.opening(url, tier.storage_options),
    )  # fmt: skip
    home = home_of(log)
    assert isinstance(home, DisklessHome)
    return DisklessUpkeep(
        home.commits,
        lambda: home.groups,
        _upkeep_options(arguments.options, LogOptions.parse(rest)),
        keyring=tier.keyring,
        stopping=arguments.stopping,
        close=log.close,
        tenure=tenure,
    )


def _upkeep_options(options: ServiceOptions, of_log: LogOptions) -> UpkeepOptions:
    """Return the options of a log in a bucket, from the service's options and the log's own."""
    return UpkeepOptions(
        retention_check_interval_ms=options.retention_check_interval_ms,
        cleaner_enable=options.cleaner_enable,
        cleaner_backoff_ms=options.cleaner_backoff_ms,
        cleaner=options.cleaner(),
        merge_interval_ms=options.merge_interval_ms,
        merge_max_extents=options.merge_max_extents,
        merge_backoff_ms=min(options.remote_interval_ms, options.merge_interval_ms),
        stage_retention_ms=options.stage_retention_ms,
        delete_delay_ms=of_log.topics.file_delete_delay_ms,
        sweep_interval_ms=options.remote_sweep_interval_ms,
        offsets_retention_ms=of_log.offsets_retention_ms,
    )
