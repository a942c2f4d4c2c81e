"""The top of the page: the kind of log, its notices, and its log dirs."""

from typing import Final

from sparklog.html import Child, Html, el, foreign
from sparklog.service import Severity
from sparklog.ui.report.model import LogReport, Where
from sparklog.ui.report.page_labels import has_tier, is_in_store
from sparklog.ui.report.page_parts import Column, chip, note, section, table
from sparklog.ui.units import (
    NONE,
    ago,
    number,
    plural,
    share_text,
    size,
    stamp,
)

KINDS: Final = {
    "log": "log", "broker": "log dirs of a broker", "archive": "archive in remote storage",
}  # fmt: skip
_NOTICES_MAX: Final = 40


def sizes_of(report: LogReport) -> dict[Where, int]:
    """Bytes by place."""
    sums = dict.fromkeys(Where, 0)
    for topic in report.topics:
        for segment in topic.segments:
            sums[segment.where] += segment.bytes
    return sums


def header(report: LogReport) -> Html:
    """The path and time of the report, and the zone of all times of the page."""
    remote: Child = None
    if has_tier(report) and report.url is not None:
        remote = el("p", "remote storage ", el("code", foreign(report.url)), class_="where")
    return el(
        "header",
        el("p", KINDS[report.kind], class_="kind"),
        el("h1", foreign(report.path)),
        remote,
        el("p", "as of ", stamp(report.time_ms, seconds=True), " · times are in ",
           el("span", "UTC", class_="zone nb"), f" · sparklog {report.version} · looked at in ",
           el("span", f"{report.took_ms / 1000:.1f}\N{NO-BREAK SPACE}s"), class_="made"),
    )  # fmt: skip


def tiles(report: LogReport) -> Html:
    """The most important numbers, without those that the log does not have."""
    sizes = sizes_of(report)
    partitions = list(report.partitions)
    found: list[tuple[str, Child, Child]] = [
        ("topics", number(len(report.topics)), plural(len(partitions), "partition")),
        ("segments", number(sum(len(p.segments) for p in partitions)),
         plural(sum(p.offsets for p in partitions), "offset")),
    ]  # fmt: skip
    whole = sum(sizes.values())
    if has_tier(report):
        local = sizes[Where.LOCAL] + sizes[Where.BOTH]
        remote = sum(p.remote_bytes for p in partitions)
        found += [
            ("local", size(local), f"{share_text(local / (whole or 1))} of the log"),
            ("remote", size(remote), el("span", size(sizes[Where.BOTH]), " of it local, too")),
        ]
    else:
        where = (
            "in the store" if is_in_store(report) else plural(len(report.directories), "log dir")
        )
        found.append(("size", size(whole), where))
    if report.commits.writers:
        commits = sum(w.commits for w in report.commits.writers)
        last = max(w.last_ms for w in report.commits.writers)
        found.append(("commits", number(commits), el("span", "last ", ago(last, report.time_ms))))
    if report.readers:
        lags: dict[str, int] = {}  # of a reader over all its partitions, as the verdict has it
        for one in report.readers:
            if not one.expired:
                lags[one.group] = lags.get(one.group, 0) + (one.lag or 0)
        groups = len({r.group for r in report.readers})
        found.append((
            "greatest lag", number(max(lags.values(), default=0)),
            f"offsets, {plural(groups, 'reader')}",
        ))  # fmt: skip
    return el(
        "dl",
        [el("div", el("dt", n), el("dd", v), el("dd", m, class_="more")) for n, v, m in found],
        class_="tiles",
    )


def notices(report: LogReport) -> Html | None:
    """Damage and warnings, or None if there are none."""
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


def directories_section(report: LogReport) -> Html | None:
    """The log dirs, or None if there are none."""
    if is_in_store(report):
        return None
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
