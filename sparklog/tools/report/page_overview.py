"""The top of the page: what the log is, what is wrong with it, its log dirs, and its growth."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from sparklog.config import TopicConfig
from sparklog.service import Severity
from sparklog.tools.report.charts import areas, bar
from sparklog.tools.report.html import Child, Html, el, foreign
from sparklog.tools.report.model import GrowthReport, LogReport, TopicReport, Where
from sparklog.tools.report.page_parts import (
    Column,
    axis,
    chip,
    figure,
    folded,
    legend,
    note,
    section,
    table,
)
from sparklog.tools.report.page_segments import WHERE
from sparklog.tools.report.units import (
    NONE,
    axis_time_text,
    number,
    plural,
    share_text,
    size,
    size_text,
    span_text,
    time_text,
)

KINDS: Final = {
    "log": "log", "broker": "log dirs of a broker", "archive": "archive in remote storage",
}  # fmt: skip
_NOTICES_MAX: Final = 40
_TOPICS_MAX: Final = 200
_GROWTH_ROWS: Final = 12


def sizes_of(report: LogReport) -> dict[Where, int]:
    """Bytes by where they lie."""
    sums = dict.fromkeys(Where, 0)
    for topic in report.topics:
        for segment in topic.segments:
            sums[segment.where] += segment.bytes
    return sums


def header(report: LogReport) -> Html:
    """What was looked at, and when."""
    when = f"{time_text(report.time_ms, seconds=True)} UTC"
    remote: Child = None
    if report.url is not None and report.kind != "archive":
        remote = el("p", "remote storage ", el("code", foreign(report.url)), class_="where")
    return el(
        "header",
        el("p", KINDS[report.kind], class_="kind"),
        el("h1", foreign(report.path)),
        remote,
        el("p", el("time", when), f" · sparklog {report.version} · looked at in "
           f"{report.took_ms / 1000:.1f} s", class_="made"),
    )  # fmt: skip


def verdict(report: LogReport) -> Html:
    """Whether all is well, in one sentence."""
    found = report.health
    bad = found.writable is False or bool(found.offline)
    mark = chip("not well", "is-damage") if bad else chip("well", "is-ok")
    return el("p", mark, " ", foreign(found.verdict), class_="verdict")


def tiles(report: LogReport) -> Html:
    """The numbers that one looks for first."""
    sizes = sizes_of(report)
    partitions = list(report.partitions)
    local = sizes[Where.LOCAL] + sizes[Where.BOTH]
    remote = sum(p.remote_bytes for p in partitions)
    lag = max((r.lag for r in report.readers if r.lag is not None and not r.expired), default=None)
    found: list[tuple[str, Child, Child]] = [
        ("topics", number(len(report.topics)), plural(len(partitions), "partition")),
        ("segments", number(sum(len(p.segments) for p in partitions)),
         el("span", number(sum(p.offsets for p in partitions)), " offsets")),
        ("local", size(local), f"{share_text(local / (sum(sizes.values()) or 1))} of the log"),
        ("remote", size(remote), el("span", size(sizes[Where.BOTH]), " of it local, too")),
    ]  # fmt: skip
    if report.kind != "archive":
        commits = sum(w.commits for w in report.commits.writers)
        found.append(("commits", number(commits), plural(len(report.commits.writers), "writer")))
        groups = len({r.group for r in report.readers})
        found.append(("greatest lag", number(lag), f"offsets, {plural(groups, 'reader')}"))
    return el(
        "dl",
        [el("div", el("dt", n), el("dd", v), el("dd", m, class_="more")) for n, v, m in found],
        class_="tiles",
    )


def notices(report: LogReport) -> Html | None:
    """Damage and warnings; None if there are none."""
    if not report.notices:
        return None
    shown = report.notices[:_NOTICES_MAX]
    damage = sum(n.severity is Severity.DAMAGE for n in report.notices)
    title = f"{damage} damaged or offline" if damage else f"{len(report.notices)} to look at"
    rows = [
        el("li", chip(str(n.severity), f"is-{n.severity}"), " ", el("strong", foreign(n.where)),
           ": ", foreign(n.what))
        for n in shown
    ]  # fmt: skip
    left = len(report.notices) - len(shown)
    hint = note("Whether all is well otherwise: ", el("code", "sparklog verify"), ".")
    more = note(f"{left} more are in the output of --json.") if left else None
    kind = "alert" if damage else "alert mild"
    return el("div", section("notices", title, el("ul", rows), more, hint), class_=kind)


def growth_section(report: LogReport) -> Html:
    """Bytes held, by the times of their records."""
    found = report.growth
    if not found.edges_ms:
        return section("growth", "Growth", note("Nothing here has a time yet."))
    running = {name: list(accumulate((0, *values))) for name, values in found.bytes.items()}
    top = max(1, sum(values[-1] for values in running.values()))
    series = {f"w-{where}": running[where] for where in map(str, Where) if running.get(where)}
    span = found.edges_ms[-1] - found.edges_ms[0]
    middle = found.edges_ms[len(found.edges_ms) // 2]
    labels: list[Child] = [
        el("span", axis_time_text(t, span), title=f"{time_text(t)} UTC")
        for t in (found.edges_ms[0], middle, found.edges_ms[-1])
    ]
    entries: list[tuple[str, Child]] = [
        (f"w-{w}", words) for w, words in WHERE.items() if running.get(str(w), [0])[-1]
    ]
    words = f"Bytes held now by the time of their records: {size_text(top)} in all"
    return section(
        "growth",
        "Growth",
        legend(entries),
        figure(
            "Bytes held now, by the time of their records, summed up",
            el("div", size_text(top), class_="top"),
            areas(series, words, total=top),
            axis(labels),
        ),
        _outside(found),
        folded("Growth as a table", _growth_table(found), key="growth"),
    )


def _outside(found: GrowthReport) -> Child:
    sides = {"before the axis": found.before, "behind its end": found.after}
    parts = [f"{size_text(count)} {words}" for words, count in sides.items() if count]
    return note("Dated elsewhere: ", ", ".join(parts), ".") if parts else None


def _growth_table(found: GrowthReport) -> list[Child]:
    places = [Column(words, "n") for words in WHERE.values()]
    columns = [Column("up to"), *places, Column("all", "n")]
    step = -(-(len(found.edges_ms) - 1) // _GROWTH_ROWS)
    rows = []
    for low, high in pairwise(range(0, len(found.edges_ms), step)):
        sums = [sum(found.bytes[str(w)][low:high]) for w in WHERE]
        rows.append((time_text(found.edges_ms[high]), *map(size, sums), size(sum(sums))))
    return [table("Bytes held now, by the time of their records", columns, rows)]


def topics_section(report: LogReport) -> Html:
    """All topics in one table, the largest first."""
    columns = [
        Column("topic"), Column("where", "bar"), Column("size", "n"), Column("partitions", "n"),
        Column("segments", "n"), Column("offsets", "n"), Column("retention"),
    ]  # fmt: skip
    found = sorted(report.topics, key=lambda t: (-t.bytes, t.name))
    top = max((t.bytes for t in found), default=0) or 1
    rows = [_topic_row(topic, top) for topic in found[:_TOPICS_MAX]]
    left = found[_TOPICS_MAX:]
    more: Child = None
    if left:
        rest = size_text(sum(t.bytes for t in left))
        more = note(f"{len(left)} smaller topics, {rest} in all, are in the output of --json.")
    if not found:
        return section("topics", "Topics", note("This log has no topics yet."))
    return section("topics", "Topics", table("Topics by size", columns, rows), more)


def _topic_row(topic: TopicReport, top: int) -> Sequence[Child]:
    sums = {w: sum(s.bytes for s in topic.segments if s.where is w) for w in Where}
    said = ", ".join(f"{size_text(n)} {WHERE[w]}" for w, n in sums.items() if n) or "nothing"
    return (
        foreign(topic.name),
        bar([(f"w-{w}", n / top) for w, n in sums.items()], f"{topic.name}: {said}"),
        size(topic.bytes),
        number(len(topic.partitions)),
        number(sum(len(p.segments) for p in topic.partitions)),
        number(sum(p.offsets for p in topic.partitions)),
        _retention_words(topic),
    )


def _retention_words(topic: TopicReport) -> str:
    """The topic's rules in short, as its configs have them."""
    if topic.config is None:
        return "the broker's"
    config = TopicConfig.parse(topic.config)
    parts = ["compact"] if config.compact else []
    if config.delete:
        parts += [span_text(config.retention_ms)] if config.retention_ms >= 0 else []
        parts += [size_text(config.retention_bytes)] if config.retention_bytes >= 0 else []
    if config.remote_storage_enable and config.local_retention_ms >= 0:
        parts.append(f"{span_text(config.local_retention_ms)} local")
    if config.remote_storage_enable and config.local_retention_bytes >= 0:
        parts.append(f"{size_text(config.local_retention_bytes)} local")
    return ", ".join(parts) or "kept for ever"


def directories_section(report: LogReport) -> Html:
    """The log dirs."""
    columns = [
        Column("log dir"), Column("state"), Column("partitions", "n"), Column("size", "n"),
        Column("free", "n"),
    ]  # fmt: skip
    rows = [
        (
            foreign(d.path),
            chip("offline", "is-damage") if d.offline else "online",
            number(d.partitions),
            size(d.bytes),
            size(d.free_bytes) if d.free_bytes is not None else NONE,
        )
        for d in report.directories
    ]
    return section("directories", "Log dirs", table("Log dirs", columns, rows))
