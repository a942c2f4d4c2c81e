"""Options of the background work on a log in a bucket."""

from dataclasses import dataclass, field

from sparklog.log.cleaner_options import CleanerOptions
from sparklog.quantities import DAY_MS, SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepOptions:
    """The service's options for a log in a bucket; `ServiceOptions` has the user documentation.

    Attributes:
        merge_interval_ms: The age at which the records of a commit are merged into a segment.
        merge_max_extents: The number of unmerged extents of a partition at which they are merged.
        stage_retention_ms: The age at which staged objects without a commit are deleted.
        delete_delay_ms: The delay before unreferenced objects are deleted, for readers with an
            older plan.
        sweep_interval_ms: The interval between sweeps; -1 for never.
        lease_timeout_ms: The time without a heartbeat after which another service takes over.
        threads: The number of concurrent requests; 1 does all work in the caller's thread.
    """

    retention_check_interval_ms: int = 300 * SECOND_MS
    cleaner_enable: bool = True
    cleaner_backoff_ms: int = 15 * SECOND_MS
    cleaner: CleanerOptions = field(default_factory=CleanerOptions)
    merge_interval_ms: int = 600 * SECOND_MS
    merge_max_extents: int = 1000
    merge_backoff_ms: int = 30 * SECOND_MS
    stage_retention_ms: int = DAY_MS
    delete_delay_ms: int = 60 * SECOND_MS
    sweep_interval_ms: int = 6 * 3600 * SECOND_MS
    lease_timeout_ms: int = 60 * SECOND_MS
    offsets_retention_ms: int = 7 * DAY_MS
    threads: int = 8
