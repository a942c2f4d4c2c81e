"""The service: what keeps a log in shape, and tells whether it is."""

from sparklog.service.checks.report import Finding, Report, Severity
from sparklog.service.verify import verify

__all__ = ["Finding", "Report", "Severity", "verify"]
