"""The pages of topics: the list of topics, and a topic's partitions, readers and configs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup

from sparklog.configdef import LONG_MAX
from sparklog.errors import InvalidRequestError
from sparklog.storage.query_origin import query_text
from sparklog.storage.view import TopicInfo
from sparklog.tools.configs import ConfigEntry, describe_configs
from sparklog.ui.browse.figures import PartitionFigures, TopicFigures
from sparklog.ui.page_request import PageRequest
from sparklog.ui.templating import render
from sparklog.ui.units import duration_text, size_text

TOPIC_FIELDS: Final = ("q", "sort", "desc", "page")
SORTS: Final = ("name", "records", "bytes", "rate", "lag", "partitions")
_NO_LIMIT: Final = ("retention.ms", "retention.bytes")  # configs where -1 means no limit
_SORT_LABELS: Final = {"bytes": "size"}  # where the column has another name than the parameter
PAGE_TOPICS: Final = 200
PAGE_PARTITIONS: Final = 500
READERS_MAX: Final = 500
PAGE_MAX: Final = 1_000_000
"""The highest page number that is accepted in a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """The data of a topic's page.

    Attributes:
        figures: The statistics of the topic.
        partitions: The partitions on this page.
        start: How many partitions are on earlier pages.
        readers: The rows of `Log.readers` for this topic.
        now_ms: The time of the page.
        has_configs: Whether this log stores topic configs.
    """

    figures: TopicFigures
    partitions: Sequence[PartitionFigures]
    start: int
    readers: Sequence[dict[str, Any]]
    now_ms: int
    has_configs: bool


def chosen_topics(topics: Sequence[TopicFigures], request: PageRequest) -> list[TopicFigures]:
    """Filter and sort topics by the query parameters `q`, `sort` and `desc`.

    Raises:
        InvalidRequestError: `sort` is unknown, or `desc` is not a boolean.
    """
    sort = request.fields.get("sort") or "name"
    if sort not in SORTS:
        raise InvalidRequestError(f"sort={sort[:100]}: topics can be sorted by {', '.join(SORTS)}")
    wanted = request.fields.get("q", "").strip().lower()
    found = [topic for topic in topics if wanted in topic.name.lower()]
    keys: dict[str, Any] = {
        "records": lambda t: t.records,
        "bytes": lambda t: t.size_bytes or 0,
        "rate": lambda t: t.rate or 0,
        "lag": lambda t: t.lag or 0,
        "partitions": lambda t: t.info.partitions,
    }
    is_descending = _is_descending(sort, request)
    found.sort(key=lambda t: t.name, reverse=sort == "name" and is_descending)
    if sort != "name":
        found.sort(key=keys[sort], reverse=is_descending)
    return found


def _is_descending(sort: str, request: PageRequest) -> bool:
    """Return whether the order is descending. By default, names ascend and numbers descend."""
    return request.flag("desc", sort != "name")


def topics_content(topics: Sequence[TopicFigures], request: PageRequest) -> Markup:
    """Return the HTML of the list of topics."""
    found = chosen_topics(topics, request)
    page = request.number("page", 1, 1, PAGE_MAX)
    fields = {name: request.fields[name] for name in TOPIC_FIELDS if request.fields.get(name)}
    return render(
        "topics.html",
        root=request.root,
        topic_count=len(topics),
        partition_count=sum(topic.info.partitions for topic in topics),
        wanted=fields.get("q", ""),
        order={name: fields[name] for name in ("sort", "desc") if name in fields},
        sorts=[_sort_link(name, request) for name in SORTS],
        topics=found[(page - 1) * PAGE_TOPICS : page * PAGE_TOPICS],
        page=page,
        pages=-(-len(found) // PAGE_TOPICS),
        page_url=f"?{urlencode(fields | {'page': ''})}",
    )


def _sort_link(name: str, request: PageRequest) -> tuple[str, str, str, bool]:
    """Return (label, arrow, URL, whether the list has this order) of a link that sorts the list.

    The link of the current order reverses it.
    """
    is_current = name == (request.fields.get("sort") or "name")
    is_descending = _is_descending(name, request)
    fields = {"q": request.fields["q"]} if request.fields.get("q") else {}
    fields["sort"] = name
    if is_current and is_descending == (name != "name"):
        fields["desc"] = "0" if is_descending else "1"
    arrow = " ↓" if is_descending else " ↑"
    url = f"{request.root}topics?{urlencode(fields)}"
    return _SORT_LABELS.get(name, name), arrow if is_current else "", url, is_current


def topic_content(view: TopicView, request: PageRequest) -> Markup:
    info = view.figures.info
    readers = sorted(view.readers, key=lambda r: (-(r["lag"] or 0), r["group"], r["partition"]))
    return render(
        "topic.html",
        root=request.root,
        topic=info.name,
        here="About",
        figures=view.figures,
        partitions=view.partitions,
        whole_bytes=sum(p.size_bytes or 0 for p in view.partitions) or 1,
        page=view.start // PAGE_PARTITIONS + 1,
        pages=-(-info.partitions // PAGE_PARTITIONS),
        readers=[(query_text(r["group"], r["query"]), r) for r in readers[:READERS_MAX]],
        readers_left=len(readers[READERS_MAX:]),
        now_ms=view.now_ms,
        configs=_configs(info) if view.has_configs else None,
        keeps_all=info.config.retention_ms == -1,
    )


def _configs(info: TopicInfo) -> dict[str, list[tuple[ConfigEntry, str]]]:
    """Return the configs that were set ("own") and all others ("rest").

    Each config is followed by its value in larger units, for display.
    """
    entries = [(e, _measure_text(e)) for e in describe_configs(info, everything=True)]
    return {
        "own": [row for row in entries if row[0].source != "DEFAULT_CONFIG"],
        "rest": [row for row in entries if row[0].source == "DEFAULT_CONFIG"],
    }


def _measure_text(entry: ConfigEntry) -> str:
    """Return the value of a time or size config in larger units ("7 d"), or "" for others."""
    value = entry.value
    if value == str(LONG_MAX) or (value == "-1" and entry.name in _NO_LIMIT):
        return "no limit"
    if not value.isdigit() or len(value) > 16:
        return ""
    if entry.name.endswith(".ms"):
        return duration_text(int(value))
    return size_text(int(value)) if entry.name.endswith(".bytes") and int(value) >= 1024 else ""
