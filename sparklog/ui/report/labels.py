"""Labels of several sections of the report: retention rules, places, links to topics."""

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from sparklog.config import TopicConfig
from sparklog.ui.report.model import TopicReport, Where
from sparklog.ui.units import duration_text, size_text


def topic_link(name: str, *, browse: bool) -> str:
    """Return the relative URL of a topic's page, or "" if the report has no such pages.

    `browse`: a server shows the report beside pages of topics.
    """
    return f"topics/{quote(name, safe='')}" if browse else ""


def place_legend(places: Iterable[Where]) -> list[tuple[str, str]]:
    """Return the legend of these places: the (style, label) of each."""
    held = set(places)
    return [(f"w-{where}", where.label) for where in Where if where in held]


def retention_label(topic: TopicReport) -> str:
    """Return the retention rules of a topic in short, such as "7 d, 1 GiB"."""
    if topic.config is None:
        return "set in the broker"
    config = TopicConfig.parse(topic.config)
    parts = ["compact"] if config.compact else []
    if config.delete:
        parts += [duration_text(config.retention_ms)] if config.retention_ms >= 0 else []
        parts += [size_text(config.retention_bytes)] if config.retention_bytes >= 0 else []
    if config.remote_storage_enable and config.local_retention_ms >= 0:
        parts.append(f"{duration_text(config.local_retention_ms)} local")
    if config.remote_storage_enable and config.local_retention_bytes >= 0:
        parts.append(f"{size_text(config.local_retention_bytes)} local")
    return ", ".join(parts) or "no\N{NO-BREAK SPACE}limit"


def rule_label(rule: str, given: Mapping[str, str] | None) -> str:
    """Return a retention rule in words, such as "older than 7 d".

    `given`: the configs of the topic, which contain the limit, or None for unknown configs.
    """
    config = TopicConfig.parse(given or {})
    age, size = config.retention_ms, config.retention_bytes
    # A local limit of -2 means the limit of the whole log, as in Kafka.
    if rule.startswith("local."):
        age = config.local_retention_ms if config.local_retention_ms >= 0 else age
        size = config.local_retention_bytes if config.local_retention_bytes >= 0 else size
    return {
        "retention.ms": f"older than {duration_text(age)}",
        "retention.bytes": f"partition over {size_text(size)}",
        "log.start.offset": "before the log start",
        "local.retention.ms": f"has a copy, older than {duration_text(age)}",
        "local.retention.bytes": f"has a copy, local part over {size_text(size)}",
        "local.log.start.offset": "before the log start",
    }.get(rule, rule)
