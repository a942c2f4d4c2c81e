"""Opens a log in a bucket for its background work (`sparklog.diskless.rounds`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparklog.clock import Clock
from sparklog.config import LogOptions
from sparklog.diskless.home import DisklessHome, open_log
from sparklog.diskless.lease import Tenure
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.rounds import DisklessUpkeep
from sparklog.log.log import home_of
from sparklog.service.options import ServiceOptions
from sparklog.service.tiering.remote_log_manager import OpenStore
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.reading.options import RemoteOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOpener:
    """Opens a log for its background work; called again when another log has replaced it."""

    url: str
    options: ServiceOptions
    log_options: Mapping[str, Any]
    storage_options: Mapping[str, Any] | None
    keyring: Keyring | None
    stopping: Callable[[], bool]
    opening: OpenStore
    clock: Clock = field(repr=False)
    tenure: Tenure = field(default_factory=Tenure, repr=False)

    def __call__(self) -> DisklessUpkeep:
        """Open the log. Raises: the errors of `sparklog.open`."""
        remote, rest = RemoteOptions.parse(self.log_options)
        log = open_log(
            self.url, mode="rw", options=rest, remote=remote, clock=self.clock,
            stopped=self.stopping, store=self.opening(self.url, self.storage_options),
        )  # fmt: skip
        home = home_of(log)
        assert isinstance(home, DisklessHome)
        return DisklessUpkeep(
            home.commits,
            lambda: home.groups,
            upkeep_options(self.options, LogOptions.parse(rest)),
            keyring=self.keyring,
            stopping=self.stopping,
            close=log.close,
            tenure=self.tenure,
        )


def upkeep_options(options: ServiceOptions, of_log: LogOptions) -> UpkeepOptions:
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
