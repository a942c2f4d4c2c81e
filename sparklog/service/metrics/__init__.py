"""A log's metrics: as objects, as samples, and as a Prometheus endpoint.

- `names`: names and help texts of all metrics
- `observed`: LogMetrics and its parts: the state of a log's files
- `observer`: Observer: reads the files, at low cost when repeated (`ledger`, `commit_trail`,
`tiers`, `batches`, `awaiting_deletion`); `store_observer`: the same for a log in a bucket;
`collecting`: `collect`, which observes either once
- `service_meters`: counts of the service's own rounds; `offline_directories`
- `samples`: all metrics as samples with labels
- `endpoint`: /metrics and /healthz over HTTP; needs prometheus_client
- `alerts.yml`: rules for Prometheus; `dashboard.json`: a dashboard for Grafana 10 and later
"""

from importlib.resources import files

from sparklog.service.metrics.collecting import collect
from sparklog.service.metrics.observed import (
    AwaitingDeletion,
    CommitMetrics,
    DirectoryMetrics,
    LogMetrics,
    PartitionMetrics,
    ReaderMetrics,
    TierMetrics,
    WriterMetrics,
)
from sparklog.service.metrics.observer import Observer

__all__ = [
    "AwaitingDeletion",
    "CommitMetrics",
    "DirectoryMetrics",
    "LogMetrics",
    "Observer",
    "PartitionMetrics",
    "ReaderMetrics",
    "TierMetrics",
    "WriterMetrics",
    "alert_rules",
    "collect",
    "dashboard",
]


def alert_rules() -> str:
    """Return the alert rules for Prometheus, as YAML."""
    return files(__name__).joinpath("alerts.yml").read_text(encoding="utf-8")


def dashboard() -> str:
    """Return the dashboard for Grafana, as JSON (schema version 39 of Grafana's dashboards)."""
    return files(__name__).joinpath("dashboard.json").read_text(encoding="utf-8")
