"""Background work on a log: roll, retention, compaction, tiering, clean-up; and checking a log.

options   Kafka's broker keys that the service takes
lease     one service at a time works on a log
survey    which partitions have something due, by one stat each
report    what a round did, or would do
rounds    the work of one round
tiering   the remote side of a round: uploads, expiring, and what both know (remote)
metrics   a log's numbers, a Prometheus endpoint, alert rules
service   Service: rounds in daemon threads, or one by `run_once`
verify    every invariant of a log dir; checks/ has them by noun
repair    what verify rebuilds from the log, and what it puts into quarantine
"""

from sparklog.service.options import ServiceOptions
from sparklog.service.report import Report
from sparklog.service.service import Service
from sparklog.service.verification.findings import Finding, Severity, Verification
from sparklog.service.verification.log import verify

__all__ = [
    "Finding",
    "Report",
    "Service",
    "ServiceOptions",
    "Severity",
    "Verification",
    "verify",
]
