"""The pages of topics: the list, and a topic's partitions, readers and configs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

from sparklog.errors import InvalidRequestError
from sparklog.html import Child, Html, el, foreign
from sparklog.storage.query_origin import query_text
from sparklog.storage.view import TopicInfo
from sparklog.tools.configs import describe_configs
from sparklog.ui.browse.figures import PartitionFigures, TopicFigures
from sparklog.ui.http_messages import HttpRequest
from sparklog.ui.report.page_parts import (
    NOTHING,
    Column,
    chip,
    folded,
    note,
    section,
    table,
)
from sparklog.ui.units import ago, duration_text, number, plural, share_text, size

TOPIC_FIELDS: Final = ("q", "sort", "desc", "page")
SORTS: Final = ("name", "records", "bytes", "rate", "lag", "partitions")
PAGE_TOPICS: Final = 200
PAGE_PARTITIONS: Final = 500
READERS_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """The page of a topic: its figures, some of its partitions, its readers.

    `start`: the first of these partitions. `has_configs`: whether this log keeps configs.
    """

    figures: TopicFigures
    partitions: Sequence[PartitionFigures]
    start: int
    readers: Sequence[dict[str, Any]]
    now_ms: int
    has_configs: bool


def chosen_topics(topics: Sequence[TopicFigures], request: HttpRequest) -> list[TopicFigures]:
    """Return the topics that match a query, in its order. Raises: InvalidRequestError."""
    sort = request.fields.get("sort") or "name"
    if sort not in SORTS:
        raise InvalidRequestError(f"sort={sort[:100]}: want one of {', '.join(SORTS)}")
    wanted = request.fields.get("q", "").strip().lower()
    found = [topic for topic in topics if wanted in topic.name.lower()]
    keys: dict[str, Any] = {
        "records": lambda t: t.records,
        "bytes": lambda t: t.size_bytes or 0,
        "rate": lambda t: t.rate or 0,
        "lag": lambda t: t.lag or 0,
        "partitions": lambda t: t.info.partitions,
    }
    found.sort(key=lambda t: t.name)
    if sort != "name":
        found.sort(key=keys[sort], reverse=True)
    return found[::-1] if request.flag("desc") else found


def frame(
    root: str, path: str, here: str, *, level: str | None = None, sign_out: bool = False
) -> Html:
    """The frame above every page: the log, links to its pages, and its health."""
    ways = [("Overview", "./"), ("Topics", "topics")]
    links = [
        el("a", words, href=f"{root}{to}", aria_current="page" if words == here else None)
        for words, to in ways
    ]
    leave = el("form", el("button", "Sign out"), method="post", action=f"{root}logout")
    mark = None
    if level is not None:
        words = {"green": "all is well", "amber": "look at it", "red": "broken"}.get(level, level)
        mark = el("a", chip(words, f"is-{level}"), href=f"{root}#health", class_="health")
    return el(
        "div", el("nav", links, aria_label="Pages"), mark,
        el("span", foreign(path), class_="where"), leave if sign_out else None, class_="frame",
    )  # fmt: skip


def topics_content(path: str, topics: Sequence[TopicFigures], request: HttpRequest) -> Html:
    """All topics: their records and sizes, and how fast they grow."""
    found = chosen_topics(topics, request)
    pages = max(-(-len(found) // PAGE_TOPICS), 1)
    page = request.number("page", 1, 1, 1_000_000)
    part = found[(page - 1) * PAGE_TOPICS : page * PAGE_TOPICS]
    columns = [
        Column("topic"), Column("records", "n"), Column("size", "n"), Column("rate", "n"),
        Column("partitions", "n"), Column("readers", "n"), Column("lag", "n"), Column("cleanup"),
    ]  # fmt: skip
    listed: Child = table("Topics", columns, [_topic_row(topic, request.root) for topic in part])
    if not topics:
        listed = note("This log has no topics yet.")
    elif not part:
        listed = note("No topic has that in its name.")
    header = el(
        "header", el("h1", "Topics"),
        el("p", plural(len(topics), "topic"), " · ",
           plural(sum(t.info.partitions for t in topics), "partition"), class_="made"),
    )  # fmt: skip
    ways = _pager(page, pages, request) if pages > 1 else None
    return Html.join([header, _topics_form(request), el("section", _sorts(request), listed, ways)])


def _topics_form(request: HttpRequest) -> Html:
    hidden = [
        el("input", type="hidden", name=name, value=request.fields[name])
        for name in ("sort", "desc") if request.fields.get(name)
    ]  # fmt: skip
    return el(
        "form",
        el("label", "Name", for_="q"),
        el("input", type="search", name="q", id="q", value=request.fields.get("q", ""),
           placeholder="part of a topic's name", data_filter="topics"),
        hidden,
        el("button", "Filter"),
        method="get", action=f"{request.root}topics", class_="ask", role="search",
    )  # fmt: skip


def _sorts(request: HttpRequest) -> Html:
    """Links that sort; the current one reverses the order."""
    present = request.fields.get("sort") or "name"
    links = []
    for name in SORTS:
        fields = {n: request.fields[n] for n in ("q",) if request.fields.get(n)} | {"sort": name}
        is_present = name == present
        if is_present and not request.flag("desc"):
            fields["desc"] = "1"
        mark = (" ↓" if (name == "name") == request.flag("desc") else " ↑") if is_present else ""
        to = f"{request.root}topics?{urlencode(fields)}"
        links.append(el("a", name, mark, href=to, aria_current="true" if is_present else None))
    return el("nav", el("span", "Sort by"), links, aria_label="Order", class_="order")


def _pager(page: int, pages: int, request: HttpRequest) -> Html:
    def to(number: int) -> str:
        return f"?{urlencode({**request.fields, 'page': str(number)})}"

    return el(
        "p",
        el("a", "Previous", href=to(page - 1), class_="button") if page > 1 else None,
        f" Page {page} of {pages} ",
        el("a", "Next", href=to(page + 1), class_="button") if page < pages else None,
        class_="pager",
    )


def topic_path(root: str, name: str) -> str:
    """Return the path of a topic's page."""
    return f"{root}topics/{quote(name, safe='')}"


def _topic_row(topic: TopicFigures, root: str) -> Sequence[Child]:
    off = chip(f"{topic.offline} offline", "is-red") if topic.offline else None
    return (
        el("a", foreign(topic.name), href=topic_path(root, topic.name)),
        number(topic.records),
        NOTHING if topic.size_bytes is None else size(topic.size_bytes),
        NOTHING if topic.rate is None else rate_label(topic.rate),
        el("span", number(topic.info.partitions), " " if off else None, off),
        number(topic.readers) if topic.readers else NOTHING,
        NOTHING if topic.lag is None else number(topic.lag),
        ", ".join(topic.info.config.cleanup_policy),
    )


def rate_label(rate: float) -> Html:
    """Records a second."""
    if rate >= 10 or rate == 0:
        return el("span", number(round(rate)), "/s")
    return el("span", f"{rate:.1f}/s" if rate >= 0.1 else "< 0.1/s")


def topic_head(name: str, root: str, here: str) -> Html:
    """A topic's name, and links to its two pages."""
    to = topic_path(root, name)
    ways = [("About", to), ("Records", f"{to}/records")]
    return el(
        "header",
        el("p", el("a", "Topics", href=f"{root}topics"), class_="kind"),
        el("h1", foreign(name)),
        el("nav", [
            el("a", words, href=way, aria_current="page" if words == here else None)
            for words, way in ways
        ], aria_label="Topic", class_="tabs"),
    )  # fmt: skip


def topic_content(view: TopicView, request: HttpRequest) -> Html:
    """A topic's page."""
    topic, info = view.figures, view.figures.info
    tiles: list[tuple[str, Child, Child]] = [
        ("records", number(topic.records),
         "at most: it is compacted" if info.config.compact else "from start to end"),
        ("size", NOTHING if topic.size_bytes is None else size(topic.size_bytes), "as it lies"),
        ("rate", NOTHING if topic.rate is None else rate_label(topic.rate),
         "over the last minute" if topic.rate is not None else "known from the next update on"),
        ("partitions", number(info.partitions),
         f"{topic.offline} offline" if topic.offline else "all can be read"),
        ("greatest lag", NOTHING if topic.lag is None else number(topic.lag),
         plural(topic.readers, "reader")),
    ]  # fmt: skip
    return Html.join([
        topic_head(info.name, request.root, "About"),
        el("dl", [el("div", el("dt", n), el("dd", v), el("dd", m, class_="more"))
                  for n, v, m in tiles], class_="tiles five"),
        _partitions(view, request),
        _readers(view),
        _configs(info) if view.has_configs else section(
            "configs", "Configs", note("A broker keeps them in its cluster's metadata, and an "
                                       "archive keeps none: they aren't known here.")),
        el("p", "Topic id ", el("code", info.id), class_="note") if info.id else None,
    ])  # fmt: skip


def _partitions(view: TopicView, request: HttpRequest) -> Html:
    info, whole = view.figures.info, sum(p.size_bytes or 0 for p in view.partitions) or 1
    columns = [
        Column("partition"), Column("records", "n"), Column("start", "n"), Column("end", "n"),
        Column("size", "n"), Column("share", "n"), Column("segments", "n"),
        Column("lies in", "long"),
    ]  # fmt: skip
    to = topic_path(request.root, info.name)
    rows: list[Sequence[Child]] = []
    for partition in view.partitions:
        here: Child = el("code", foreign(partition.directory))
        if partition.offline is not None:
            here = el("span", chip("offline", "is-red"), " ", foreign(partition.offline))
        away = f", {partition.remote_segments} remote" if partition.remote_segments else None
        rows.append((
            el("a", str(partition.partition), href=f"{to}/records?partition={partition.partition}"),
            number(max(partition.end - partition.start, 0)),
            number(partition.start),
            number(partition.end),
            NOTHING if partition.size_bytes is None else size(partition.size_bytes),
            NOTHING if partition.size_bytes is None else share_text(partition.size_bytes / whole),
            NOTHING if partition.segments is None else el("span", number(partition.segments), away),
            here,
        ))  # fmt: skip
    pages = -(-info.partitions // PAGE_PARTITIONS)
    page = view.start // PAGE_PARTITIONS + 1
    ways = _pager(page, pages, request) if pages > 1 else None
    return section("partitions", "Partitions", table("Partitions", columns, rows), ways)


def _readers(view: TopicView) -> Html:
    if not view.readers:
        return section("readers", "Readers", note("No reader is registered for this topic."))
    rows = sorted(view.readers, key=lambda r: (-(r["lag"] or 0), r["group"], r["partition"]))
    columns = [
        Column("reader"), Column("partition", "n"), Column("offset", "n"), Column("lag", "n"),
        Column("committed", "time"), Column("state"),
    ]  # fmt: skip
    shown = [
        (
            foreign(query_text(row["group"], row["query"])),
            number(row["partition"]),
            number(row["offset"]),
            number(row["lag"]),
            ago(row["time"], view.now_ms),
            "expired" if row["expired"] else row["kind"],
        )
        for row in rows[:READERS_MAX]
    ]
    left = len(rows) - len(shown)
    more = note(f"{left} more positions are in the JSON of this page.") if left else None
    return section("readers", "Readers", table("Readers", columns, shown), more)


def _configs(info: TopicInfo) -> Html:
    entries = describe_configs(info, everything=True)
    columns = [Column("config"), Column("value"), Column("default"), Column("what it does", "long")]
    own = [e for e in entries if e.source != "DEFAULT_CONFIG"]
    rest = [e for e in entries if e.source == "DEFAULT_CONFIG"]

    def row(entry: Any) -> Sequence[Child]:
        words = _config_words(entry.name, entry.value)
        return (el("code", entry.name), el("span", foreign(entry.value), words),
                foreign(entry.default), entry.doc)  # fmt: skip

    said: Child = table("Configs that were set", columns, map(row, own))
    if not own:
        said = note("None was set: all have their defaults.")
    others = folded(
        f"{len(rest)} have their defaults", table("Defaults", columns, map(row, rest)), key="rest"
    )
    return section("configs", "Configs", said, others)


def _config_words(name: str, value: str) -> Html | None:
    """A length of time, or a size, as people read it."""
    if not value.isdigit() or len(value) > 16:
        return None
    if name.endswith(".ms"):
        return el("span", f" ({duration_text(int(value))})", class_="nil")
    if name.endswith(".bytes") and int(value) >= 1024:
        return el("span", " (", size(int(value)), ")", class_="nil")
    return None
