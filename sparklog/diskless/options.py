"""How a log in a store is kept in shape: what its background work goes by."""

from dataclasses import dataclass, field

from sparklog.log.cleaner_options import CleanerOptions
from sparklog.quantities import DAY_MS, SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepOptions:
    """The service's keys that are for such a log; its `ServiceOptions` have them with their docs.

    `merge_interval_ms`: how old a commit's records may be before they become part of a segment.
    `merge_max_extents`: how many pieces of a partition may lie side by side before they do.
    `stage_retention_ms`: how long what was staged and not committed is kept.
    `delete_delay_ms`: how long what nobody names any more is left, for readers that plan with it.
    `sweep_interval_ms`: between two looks at all that lies in the store; -1: none.
    `lease_timeout_ms`: how long a service's sign of life may stand still before another takes over.
    `threads`: requests for pieces at the same time; 1 does everything in one thread.
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
