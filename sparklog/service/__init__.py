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

from sparklog.service.erasure import erase
from sparklog.service.log_verification import verify
from sparklog.service.options import ServiceOptions
from sparklog.service.service import Service
from sparklog.service.verification.findings import Finding, Severity, Verification
from sparklog.storage.erasure_report import ErasureReport
from sparklog.storage.round_report import Report

__all__ = [
    "ErasureReport",
    "Finding",
    "Report",
    "Service",
    "ServiceOptions",
    "Severity",
    "Verification",
    "erase",
    "verify",
]
