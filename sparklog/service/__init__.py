"""Background work on a log, and verification of a log.

- `service`: `Service`, which works in daemon threads, or does a single round by `run_once`
- `options`: Kafka's broker keys that the service supports
- `leadership`: opens the log, and acquires and lends the lease
- `backend`: how the service opens and observes a log, by its home
- `erasure`: `erase`, which removes records for good; `log_dir_erasure`
- `log_dir_upkeep`: background work on log dirs (`sparklog.storage.upkeep`); `log_dir_retention`,
  `log_dir_cleaner`, `retired_files`: its steps; `disk_probe`
- `announcement_file`: announcements before the first retention in a topic
- `tiering`: the remote part of a round
- `health`: the verdict on a log: green, amber or red
- `metrics`: metrics of a log, a Prometheus endpoint, alert rules; `http_server`
- `log_verification`: `verify`, which checks all invariants of a log; `verification`: the checks;
`quick_verification`: checks that do not read data
- `repair`: repairs of `verify`: rebuilds derived files, or moves files to quarantine
"""

from sparklog.format.erasure import RecordPredicate
from sparklog.log.batch_figures import BatchFigures
from sparklog.service.erasure import erase
from sparklog.service.health import Check, Health, Level, Limits, examine
from sparklog.service.log_verification import verify
from sparklog.service.service import Service
from sparklog.service.verification.findings import (
    Finding,
    Fix,
    FixKind,
    Severity,
    Verification,
)
from sparklog.storage.erasure_report import (
    ErasedFrom,
    ErasedOffsets,
    ErasureReport,
    PartitionErasure,
    RemovedFile,
)
from sparklog.storage.round_report import (
    CleanReport,
    Deleted,
    Dirt,
    Expired,
    Merged,
    Removed,
    Report,
    Swept,
    Uploaded,
)

__all__ = [
    "BatchFigures",
    "Check",
    "CleanReport",
    "Deleted",
    "Dirt",
    "ErasedFrom",
    "ErasedOffsets",
    "ErasureReport",
    "Expired",
    "Finding",
    "Fix",
    "FixKind",
    "Health",
    "Level",
    "Limits",
    "Merged",
    "PartitionErasure",
    "RecordPredicate",
    "Removed",
    "RemovedFile",
    "Report",
    "Service",
    "Severity",
    "Swept",
    "Uploaded",
    "Verification",
    "erase",
    "examine",
    "verify",
]
