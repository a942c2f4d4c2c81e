"""Background work on a log: roll, retention, compaction, clean-up; and checking a log.

    options   Kafka's broker keys that the service takes
    lease     one service at a time works on a log
    survey    which partitions have something due, by one stat each
    report    what a round did, or would do
    rounds    the work of one round
    service   Service: rounds in a daemon thread, or one by `run_once`
"""

from sparklog.service.options import ServiceOptions
from sparklog.service.report import Report
from sparklog.service.service import Service

__all__ = ["Report", "Service", "ServiceOptions"]
