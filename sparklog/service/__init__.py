"""Background work on a log: roll, retention, compaction, tiering, clean-up; and checking a log.

- `service`: `Service`, rounds in daemon threads, or one by `run_once`
- `options`: Kafka's broker keys that it takes
- `leadership`: the log that it has open, its turn by the log's lease
- `homes`: what it works with, by the log's home; `store_upkeep`: a log in a store
- `erasure`: `erase`, records that go for good; `erasure_request`, `log_dir_erasure`
- `log_dir_upkeep`: the work on log dirs, as `sparklog.storage.upkeep` says; `rounds`: its steps
- `announcement_file`: what was announced before retention's first deletion in a topic
- `quarantined_partitions`: damaged ones, left alone by the rounds
- `housekeeping`: ledger segments, idle producers, silent readers, staged files; `disk_probe`
- `tiering`: the remote side of a round
- `health`: the verdict on a log: green, amber or red
- `metrics`: a log's numbers, a Prometheus endpoint, alert rules; `http_server`, `lifetime`
- `log_verification`: `verify`, every invariant of a log dir; `verification` has them by noun;
  `quick_verification`: what can be told without reading data
- `repair`: what `verify` mends: made anew from the log, or put into quarantine
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
