"""Labels that several sections of the report share: rules of retention, links to topics."""

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from sparklog.config import TopicConfig
from sparklog.ui.report.model import TopicReport, Where
from sparklog.ui.units import duration_text, size_text


def topic_link(name: str, *, browse: bool) -> str:
    """Return the address of a topic's page, or nothing without `browse`."""
    return f"topics/{quote(name, safe='')}" if browse else ""


def place_legend(places: Iterable[Where]) -> list[tuple[str, str]]:
    """Return the (style, words) of these places."""
    held = set(places)
    return [(f"w-{where}", where.label) for where in Where if where in held]


def retention_label(topic: TopicReport) -> str:
    """The topic's retention rules in short, from its configs."""
    if topic.config is None:
        return "the broker's"
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
    """A rule of retention in words, with its limit if the topic's configs have one."""
    config = TopicConfig.parse(given or {})
    age, size = config.retention_ms, config.retention_bytes
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
