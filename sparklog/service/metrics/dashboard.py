"""A dashboard for Grafana (10 and later) over the metrics of a log's endpoint, as its JSON.

Panels ask for the instances that serve the chosen log. Where a service stands by beside the one
that leads, both tell what the log's files say: such series are taken once, by `max`.
Source: Grafana's dashboard model, schema version 39 (kinds/dashboard/dashboard_kind.cue).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

SCHEMA_VERSION: Final = 39
_COLUMNS: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_LOG: Final = 'job=~"$job", instance=~"$instance"'
_TOPIC: Final = f'{_LOG}, topic=~"$topic"'
_RATE: Final = "[$__rate_interval]"
_GREEN, _AMBER, _RED = "green", "orange", "red"


@dataclass(frozen=True, slots=True)
class _Query:
    """An expression of Prometheus, and what its series are called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """`unit`: Grafana's name of one. `steps`: (from which value on, colour), ascending."""

    title: str
    about: str
    queries: Sequence[_Query]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    steps: Sequence[tuple[float | None, str]] = ()
    names: Sequence[tuple[str, str, str]] = ()  # (value, what it says, colour)
    least: float | None = 0
    stacked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    title: str
    panels: Sequence[_Panel]
    folded: bool = False


def _quantiles(name: str, by: str = "", labels: str = _LOG) -> list[_Query]:
    """Three quantiles of a histogram."""
    legend = f"{{{{{by}}}}} " if by else ""
    group = f"le, {by}" if by else "le"
    return [
        _Query(
            f"histogram_quantile({q}, sum by ({group}) (rate({name}_bucket{{{labels}}}{_RATE})))",
            f"{legend}p{q * 100:g}",
        )
        for q in ((0.5, 0.99) if by else (0.5, 0.95, 0.99))
    ]


def _by_topic(name: str) -> str:
    """A gauge a partition, summed by topic."""
    return f"sum by (topic) (max by (topic, partition) ({name}{{{_TOPIC}}}))"


def _rate(name: str, by: str, labels: str = _LOG) -> str:
    """A counter of the log, which each instance counts for itself."""
    return f"max by ({by}) (sum by (instance, {by}) (rate({name}{{{labels}}}{_RATE})))"


_HEALTH: Final = _Row(
    title="Health",
    panels=(
        _Panel(
            title="Verdict",
            about="What `sparklog status` says, by check. Red and amber ones say there what helps.",
            queries=[_Query(f"max by (check) (sparklog_health{{{_LOG}}})", "{{check}}")],
            kind="stat", width=12,
            steps=((None, _GREEN), (1, _AMBER), (2, _RED)),
            names=(("0", "green", _GREEN), ("1", "amber", _AMBER), ("2", "red", _RED)),
        ),
        _Panel(
            title="Alerts firing",
            about="Of the rules of `sparklog alerts`.",
            queries=[_Query(
                'count(ALERTS{alertname=~"Sparklog.*", alertstate="firing", job=~"$job"})'
                " or vector(0)", "firing",
            )],
            kind="stat", width=3, steps=((None, _GREEN), (1, _RED)),
        ),
        _Panel(
            title="Service",
            about="Whether a scraped service does the log's work.",
            queries=[_Query(f"max(sparklog_service_leading{{{_LOG}}})", "service")],
            kind="stat", width=3, steps=((None, _RED), (1, _GREEN)),
            names=(("0", "none leads", _RED), ("1", "leads", _GREEN)),
        ),
        _Panel(
            title="Since the last commit",
            about="Time since anybody committed to the log.",
            queries=[_Query(
                f"time() - max(sparklog_last_commit_timestamp_seconds{{{_LOG}}})", "last commit"
            )],
            kind="stat", unit="s", width=3, least=None,
        ),
        _Panel(
            title="Offline partitions",
            about="Partitions that recovery found damaged and left alone: `sparklog verify`.",
            queries=[_Query(f"max(sparklog_offline_partitions{{{_LOG}}})", "offline")],
            kind="stat", width=3, steps=((None, _GREEN), (1, _RED)),
        ),
    ),
)  # fmt: skip
_THROUGHPUT: Final = _Row(
    title="Throughput",
    panels=(
        _Panel(
            title="Records written", about="Of all writers, by topic, a second.",
            queries=[
                _Query(_rate("sparklog_commit_records_total", "topic", _TOPIC), "{{topic}}")
            ],
            unit="cps", stacked=True,
        ),
        _Panel(
            title="Bytes committed", about="Of record batches, as they lie in the log, a second.",
            queries=[
                _Query(f"max(rate(sparklog_commit_size_bytes_sum{{{_LOG}}}{_RATE}))", "bytes")
            ],
            unit="binBps",
        ),
        _Panel(
            title="Commits", about="Micro-batches (commit) and plain appends, a second.",
            queries=[_Query(_rate("sparklog_commits_total", "kind"), "{{kind}}")],
            unit="cps", stacked=True,
        ),
        _Panel(
            title="Time of a commit",
            about="Of all writers, from asking for the write lock to the ledger's record.",
            queries=_quantiles("sparklog_commit_duration_seconds"), unit="s",
        ),
        _Panel(
            title="Size of a commit", about="Bytes of a commit's record batches.",
            queries=_quantiles("sparklog_commit_size_bytes"), unit="bytes",
        ),
        _Panel(
            title="Since a writer's last micro-batch", about="By writer.",
            queries=[_Query(
                "time() - max by (writer) "
                f"(sparklog_writer_last_commit_timestamp_seconds{{{_LOG}}})", "{{writer}}",
            )],
            unit="s",
        ),
    ),
)  # fmt: skip
_READERS: Final = _Row(
    title="Readers",
    panels=(
        _Panel(
            title="Lag by reader", about="Records that registered readers are behind the end.",
            queries=[_Query(
                "sum by (group, topic) (max by (group, topic, partition) "
                f"(sparklog_reader_lag_records{{{_TOPIC}}}))", "{{group}} on {{topic}}",
            )],
        ),
        _Panel(
            title="Records read", about="How far registered readers come, a second.",
            queries=[_Query(
                "sum by (group, topic) (max by (group, topic, partition) "
                f"(deriv(sparklog_reader_offset{{{_TOPIC}}}{_RATE})))", "{{group}} on {{topic}}",
            )],
            unit="cps", least=None,
        ),
        _Panel(
            title="Since a reader's last commit", about="Time since it last said where it is.",
            queries=[_Query(
                "time() - max by (group, kind) "
                f"(sparklog_reader_last_commit_timestamp_seconds{{{_LOG}}})", "{{group}}",
            )],
            unit="s",
        ),
    ),
)  # fmt: skip
_SIZES: Final = _Row(
    title="Sizes",
    panels=(
        _Panel(
            title="Bytes by topic", about="Of local segments; of a log in a store, of its pieces.",
            queries=[_Query(_by_topic("kafka_log_log_size"), "{{topic}}")],
            unit="bytes", stacked=True,
        ),
        _Panel(
            title="Free room", about="On the log dirs' disks; a log in a store has none.",
            queries=[_Query(
                f"min by (logDirectory) (sparklog_disk_free_bytes{{{_LOG}}})", "{{logDirectory}}"
            )],
            unit="bytes",
        ),
        _Panel(
            title="Segments by topic", about="Small ones make each open and listing slow.",
            queries=[_Query(_by_topic("kafka_log_log_numlogsegments"), "{{topic}}")],
        ),
        _Panel(
            title="Records held", about="Offsets between log start and end, by topic.",
            queries=[_Query(
                "sum by (topic) (max by (topic, partition) "
                f"(kafka_log_log_logendoffset{{{_TOPIC}}}) - max by (topic, partition) "
                f"(kafka_log_log_logstartoffset{{{_TOPIC}}}))", "{{topic}}",
            )],
        ),
        _Panel(
            title="Overdue for deletion",
            about="Bytes that retention should have deleted by now.",
            queries=[_Query(
                f"max by (topic) (sparklog_retention_due_bytes{{{_TOPIC}}})", "{{topic}}"
            )],
            unit="bytes",
        ),
        _Panel(
            title="Waits for its delay",
            about="Bytes of deleted topics and segments until file.delete.delay.ms is over: the "
            "room comes back by itself.",
            queries=[_Query(
                "max by (topic, kind, storage) "
                f"(sparklog_awaiting_deletion_bytes{{{_TOPIC}}}) or vector(0)",
                "{{topic}} {{kind}} {{storage}}",
            )],
            unit="bytes", stacked=True,
        ),
        _Panel(
            title="Deleted by retention", about="Bytes a second, by rule.",
            queries=[_Query(
                f"sum by (rule) (rate(sparklog_service_deleted_bytes_total{{{_LOG}}}{_RATE}))",
                "{{rule}}",
            )],
            unit="binBps",
        ),
    ),
)  # fmt: skip
_BATCHES: Final = _Row(
    title="Record batches",
    panels=(
        _Panel(
            title="Records a batch",
            about="Of each topic's newest batches. One or two leave compression nothing to do: "
            "write to fewer partitions a micro-batch, or with a larger linger.ms and batch.size.",
            queries=[_Query(
                f"max by (topic, codec) (sparklog_batch_records_avg{{{_TOPIC}}})",
                "{{topic}}, {{codec}}",
            )],
        ),
        _Panel(
            title="Bytes a batch", about="Mean and 99th percentile, as they lie in the log.",
            queries=[
                _Query(f"max by (topic, codec) (sparklog_batch_size_avg_bytes{{{_TOPIC}}})",
                       "{{topic}}, {{codec}}: mean"),
                _Query("max by (topic, codec) "
                       f'(sparklog_batch_size_bytes{{{_TOPIC}, quantile="0.99"}})',
                       "{{topic}}, {{codec}}: p99"),
            ],
            unit="bytes",
        ),
        _Panel(
            title="Compressed to", about="Compressed bytes by bytes in plain: 1 saves nothing.",
            queries=[_Query(
                f"max by (topic, codec) (sparklog_batch_compression_rate_avg{{{_TOPIC}}})",
                "{{topic}}, {{codec}}",
            )],
            unit="percentunit",
        ),
    ),
)  # fmt: skip
_SERVICE: Final = _Row(
    title="Service",
    panels=(
        _Panel(
            title="Time of a round", about="Mean, by kind of work.",
            queries=[_Query(
                "sum by (work) "
                f"(rate(sparklog_service_round_duration_seconds_sum{{{_LOG}}}{_RATE}))"
                " / sum by (work) "
                f"(rate(sparklog_service_round_duration_seconds_count{{{_LOG}}}{_RATE}))",
                "{{work}}",
            )],
            unit="s",
        ),
        _Panel(
            title="What failed in rounds", about="A second; the service's log says what.",
            queries=[_Query(
                f"sum by (work) (rate(sparklog_service_round_errors_total{{{_LOG}}}{_RATE}))"
                f" or sum by (work) (0 * sparklog_service_rounds_total{{{_LOG}}})", "{{work}}",
            )],
            unit="cps",
        ),
        _Panel(
            title="Write lock held", about="By one step of the service.",
            queries=_quantiles("sparklog_service_lock_held_seconds"), unit="s",
        ),
        _Panel(
            title="Since a round ended well", about="By kind of work.",
            queries=[_Query(
                "time() - max by (work) "
                f"(sparklog_service_last_success_timestamp_seconds{{{_LOG}}})", "{{work}}",
            )],
            unit="s",
        ),
        _Panel(
            title="Held back by readers",
            about="Bytes that only a registered reader kept from being deleted.",
            queries=[_Query(
                f"max(sparklog_service_retention_held_back_bytes{{{_LOG}}})", "held back"
            )],
            unit="bytes",
        ),
        _Panel(
            title="Time of a scrape", about="To read the log's files for these numbers.",
            queries=[_Query(f"sparklog_scrape_duration_seconds{{{_LOG}}}", "{{instance}}")],
            unit="s",
        ),
    ),
)  # fmt: skip
_CLEANER: Final = _Row(
    title="Cleaner",
    panels=(
        _Panel(
            title="Dirtiest partition", about="Its dirty share, of all compacted ones.",
            queries=[_Query(
                f"max(kafka_log_logcleanermanager_max_dirty_percent{{{_LOG}}})", "dirty"
            )],
            unit="percent", width=6,
        ),
        _Panel(
            title="Since the cleaner looked", about="An hour is an alert.",
            queries=[_Query(
                f"max(kafka_log_logcleanermanager_time_since_last_run_ms{{{_LOG}}})", "cleaner"
            )],
            unit="ms", width=6,
        ),
        _Panel(
            title="Cleaned", about="Bytes read and written by the cleaner, a second.",
            queries=[
                _Query(f"sum(rate(sparklog_service_cleaned_bytes_total{{{_LOG}}}{_RATE}))", "read"),
                _Query(
                    f"sum(rate(sparklog_service_cleaner_written_bytes_total{{{_LOG}}}{_RATE}))",
                    "written",
                ),
            ],
            unit="binBps", width=6,
        ),
        _Panel(
            title="Uncleanable partitions", about="Damaged ones: `sparklog verify`.",
            queries=[_Query(
                "max by (logDirectory) "
                f"(kafka_log_logcleanermanager_uncleanable_partitions_count{{{_LOG}}})",
                "{{logDirectory}}",
            )],
            width=6,
        ),
    ),
)  # fmt: skip
_TIER: Final = _Row(
    title="Remote storage",
    folded=True,
    panels=(
        _Panel(
            title="Waits for its copy", about="Bytes of closed segments, by topic.",
            queries=[_Query(
                "max by (topic) "
                f"(kafka_server_brokertopicmetrics_remotecopylagbytes{{{_TOPIC}}})", "{{topic}}",
            )],
            unit="bytes",
        ),
        _Panel(
            title="Age of what waits", about="Of the newest record in the oldest such segment.",
            queries=[_Query(
                f"max by (topic) (sparklog_remote_copy_lag_seconds{{{_TOPIC}}})", "{{topic}}"
            )],
            unit="s",
        ),
        _Panel(
            title="Bytes of copies", about="By topic.",
            queries=[_Query(
                "max by (topic) "
                f"(kafka_server_brokertopicmetrics_remotelogsizebytes{{{_TOPIC}}})", "{{topic}}",
            )],
            unit="bytes", stacked=True,
        ),
        _Panel(
            title="Copied and deleted there", about="Segments a second.",
            queries=[
                _Query("sum(rate(kafka_server_brokertopicmetrics_remotecopyrequests_total"
                       f"{{{_LOG}}}{_RATE}))", "copied"),
                _Query("sum(rate(kafka_server_brokertopicmetrics_remotedeleterequests_total"
                       f"{{{_LOG}}}{_RATE})) or vector(0)", "deleted"),
            ],
            unit="cps",
        ),
        _Panel(
            title="Waits for deletion there", about="Bytes of copies that should be gone.",
            queries=[_Query(
                "max by (topic) "
                f"(kafka_server_brokertopicmetrics_remotedeletelagbytes{{{_TOPIC}}})",
                "{{topic}}",
            )],
            unit="bytes",
        ),
        _Panel(
            title="Failures", about="Rounds of copying and deleting that a failure ended.",
            queries=[_Query(
                f"sum(rate(sparklog_service_remote_errors_total{{{_LOG}}}{_RATE})) or vector(0)",
                "failures",
            )],
            unit="cps",
        ),
    ),
)  # fmt: skip
_STORE: Final = _Row(
    title="A log in a store",
    folded=True,
    panels=(
        _Panel(
            title="Waits to be merged", about="Bytes of pieces that are no segment yet.",
            queries=[_Query(
                f"max by (topic) (sparklog_merge_lag_bytes{{{_TOPIC}}})", "{{topic}}"
            )],
            unit="bytes",
        ),
        _Panel(
            title="Age of the oldest piece", about="By topic.",
            queries=[_Query(
                f"max by (topic) (sparklog_merge_lag_seconds{{{_TOPIC}}})", "{{topic}}"
            )],
            unit="s",
        ),
        _Panel(
            title="Services that took it", about="Each new one raises the term.",
            queries=[_Query(f"max(sparklog_service_term{{{_LOG}}})", "term")],
        ),
    ),
)  # fmt: skip
_CLIENTS: Final = _Row(
    title="Kafka's clients",
    folded=True,
    panels=(
        _Panel(
            title="Requests", about="A second, by API.",
            queries=[_Query(
                "sum by (request) "
                f"(rate(kafka_network_requestmetrics_requests_total{{{_LOG}}}{_RATE}))",
                "{{request}}",
            )],
            unit="reqps",
        ),
        _Panel(
            title="Errors", about="Error codes in answers, a second.",
            queries=[_Query(
                "sum by (request, error) (rate(kafka_network_requestmetrics_errors_total"
                f'{{{_LOG}, error!="NONE"}}{_RATE})) or vector(0)', "{{request}} {{error}}",
            )],
            unit="cps",
        ),
        _Panel(
            title="Time of a request",
            about="From its last byte to its answer, in which a Fetch or a Join may have waited.",
            queries=_quantiles("sparklog_kafka_request_duration_seconds", "request"), unit="s",
        ),
        _Panel(
            title="Connections", about="Open ones.",
            queries=[_Query(
                f"sum by (instance) (sparklog_kafka_connections{{{_LOG}}})", "{{instance}}"
            )],
        ),
        _Panel(
            title="Bytes of requests and answers", about="A second.",
            queries=[
                _Query(f"sum(rate(sparklog_kafka_received_bytes_total{{{_LOG}}}{_RATE}))", "in"),
                _Query(f"sum(rate(sparklog_kafka_sent_bytes_total{{{_LOG}}}{_RATE}))", "out"),
            ],
            unit="binBps",
        ),
        _Panel(
            title="Time of an fsync", about="Of a partition's file, in the process that serves.",
            queries=[_Query(
                "max by (quantile) (kafka_log_logflushstats_logflushrateandtimems"
                f'{{{_LOG}, quantile=~"0.5|0.99"}})', "p{{quantile}}",
            )],
            unit="ms",
        ),
    ),
)  # fmt: skip
_QUERIES: Final = _Row(
    title="Streaming queries (watch_queries)",
    folded=True,
    panels=(
        _Panel(
            title="Rows read", about="A second, by query.",
            queries=[_Query(
                f"sum by (query) (rate(sparklog_query_input_rows_total{{{_LOG}}}{_RATE}))",
                "{{query}}",
            )],
            unit="cps",
        ),
        _Panel(
            title="Time of a micro-batch", about="By query.",
            queries=_quantiles("sparklog_query_batch_duration_seconds", "query"), unit="s",
        ),
        _Panel(
            title="Left unread", about="Offsets that the last micro-batch left, by query.",
            queries=[_Query(
                f"sum by (query) (sparklog_query_lag_records{{{_LOG}}})", "{{query}}"
            )],
        ),
    ),
)  # fmt: skip
ROWS: Final = (
    _HEALTH, _THROUGHPUT, _READERS, _SIZES, _BATCHES, _SERVICE, _CLEANER, _TIER, _STORE, _CLIENTS,
    _QUERIES,
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports or provisions it, for `json.dump`."""
    return {
        "uid": "sparklog",
        "title": "sparklog",
        "description": "A log of sparklog: health, throughput, readers, sizes, batches, upkeep.",
        "tags": ["sparklog", "kafka"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables())},
        "annotations": {"list": [_alerts()]},
        "links": [],
        "panels": list(_laid_out()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource", "type": "datasource", "label": "Prometheus", "query": "prometheus",
        "hide": 0, "multi": False, "includeAll": False, "refresh": 1,
    }  # fmt: skip
    yield _variable("job", "Job", "label_values(sparklog_info, job)")
    yield _variable("log", "Log", 'label_values(sparklog_info{job=~"$job"}, path)')
    of_log = 'sparklog_info{job=~"$job", path="$log"}'
    yield _variable("instance", "Instance", f"label_values({of_log}, instance)", many=True)
    of_topics = f"kafka_log_log_logendoffset{{{_LOG}}}"
    yield _variable("topic", "Topic", f"label_values({of_topics}, topic)", many=True)


def _variable(name: str, label: str, query: str, *, many: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name, "type": "query", "label": label, "datasource": _SOURCE,
        "query": {"query": query, "refId": name}, "hide": 0, "refresh": 2, "sort": 1,
        "multi": many, "includeAll": many,
    }  # fmt: skip
    if many:
        found["allValue"] = ".*" if name == "topic" else None
        found["current"] = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return {key: value for key, value in found.items() if value is not None}


def _alerts() -> dict[str, Any]:
    return {
        "name": "Alerts", "datasource": _SOURCE, "enable": True, "hide": False,
        "iconColor": _RED, "titleFormat": "{{alertname}}",
        "expr": 'ALERTS{alertname=~"Sparklog.*", alertstate="firing", job=~"$job"}',
    }  # fmt: skip


def _laid_out() -> Iterator[dict[str, Any]]:
    """Rows from top to bottom, their panels from left to right; those of a folded row inside it."""
    number, at = 0, 0
    for row in ROWS:
        number += 1
        head = {
            "id": number, "type": "row", "title": row.title, "collapsed": row.folded,
            "gridPos": {"x": 0, "y": at, "w": _COLUMNS, "h": 1},
        }  # fmt: skip
        at, x, height, inside = at + 1, 0, 0, []
        for panel in row.panels:
            number += 1
            if x + panel.width > _COLUMNS:
                at, x, height = at + height, 0, 0
            high = 4 if panel.kind == "stat" else 8
            grid = {"x": x, "y": at, "w": panel.width, "h": high}
            inside.append(_panel(panel, number, grid))
            x, height = x + panel.width, max(height, high)
        at += height
        yield head | {"panels": inside if row.folded else []}
        if not row.folded:
            yield from inside


def _panel(panel: _Panel, number: int, grid: dict[str, int]) -> dict[str, Any]:
    is_stat = panel.kind == "stat"
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    if is_stat:
        several = any("{{" in query.legend for query in panel.queries)
        options = {
            "colorMode": "background" if panel.steps else "value", "graphMode": "none",
            "justifyMode": "auto", "orientation": "auto", "wideLayout": True,
            "percentChangeColorMode": "standard", "showPercentChange": False,
            "textMode": "value_and_name" if several else "value",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }  # fmt: skip
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": grid,
        "targets": [
            {
                "refId": chr(ord("A") + at), "datasource": _SOURCE, "editorMode": "code",
                "expr": query.expr, "legendFormat": query.legend, "range": not is_stat,
                "instant": is_stat,
            }
            for at, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": options,
    }  # fmt: skip


def _defaults(panel: _Panel) -> dict[str, Any]:
    steps = [{"value": value, "color": colour} for value, colour in panel.steps]
    found: dict[str, Any] = {
        "unit": panel.unit,
        "color": {"mode": "thresholds" if steps else "palette-classic"},
        "thresholds": {
            "mode": "absolute", "steps": steps or [{"value": None, "color": _GREEN}],
        },
        "mappings": [
            {"type": "value", "options": {
                value: {"text": text, "color": colour, "index": at}
            }}
            for at, (value, text, colour) in enumerate(panel.names)
        ],
    }  # fmt: skip
    if panel.least is not None:
        found["min"] = panel.least
    if panel.kind == "timeseries":
        found["custom"] = {
            "drawStyle": "line", "lineWidth": 1, "fillOpacity": 30 if panel.stacked else 0,
            "showPoints": "never", "spanNulls": 300_000,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }  # fmt: skip
    return found
