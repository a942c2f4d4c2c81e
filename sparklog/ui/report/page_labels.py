"""Labels that several sections of the page share: places, rules of retention, names of topics."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from sparklog.config import TopicConfig
from sparklog.html import Child, el, foreign
from sparklog.ui.report.model import LogReport, TopicReport, Where
from sparklog.ui.units import duration_text, size_text

WHERE: Final = {
    Where.LOCAL: "local only",
    Where.BOTH: "local, with a copy",
    Where.REMOTE: "remote only",
}


def has_tier(report: LogReport) -> bool:
    """Whether a log on disks uses remote storage; if not, the page does not mention it."""
    if is_in_store(report):
        return False
    return report.url is not None or any(p.remote_bytes for p in report.partitions)


def is_in_store(report: LogReport) -> bool:
    """Whether the whole log is in a store: an archive, or a log without local segments."""
    return report.url is not None and report.url == report.path.rstrip("/")


def topic_name(name: str, *, browse: bool) -> Child:
    """A topic's name; with `browse` a link to the topic's page."""
    if not browse:
        return foreign(name)
    return el("a", foreign(name), href=f"topics/{quote(name, safe='')}")


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
    return ", ".join(parts) or "kept for ever"


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
