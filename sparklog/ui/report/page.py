"""`render`: a report as one HTML page without external parts: style, pictures, script inside.

The live page is the same with a script that refreshes the content; see `page_shell`.
"""

from typing import Final

from sparklog.html import Child, Html, el
from sparklog.ui.report.model import LogReport
from sparklog.ui.report.page_growth import growth_section
from sparklog.ui.report.page_health import health_section
from sparklog.ui.report.page_overview import (
    directories_section,
    header,
    notices,
    tiles,
)
from sparklog.ui.report.page_segments import segments_section
from sparklog.ui.report.page_shell import document
from sparklog.ui.report.page_topics import topics_section
from sparklog.ui.report.page_traffic import commits_section, readers_section
from sparklog.ui.report.page_upkeep import compaction_section, retention_section

_SECTIONS: Final = {
    "topics": "Topics", "growth": "Growth", "segments": "Segments", "retention": "Retention",
    "compaction": "Compaction", "commits": "Commits", "readers": "Readers",
    "directories": "Log dirs",
}  # fmt: skip


def render(report: LogReport, *, refresh_ms: int | None = None, browse: bool = False) -> str:
    """Return the page. `refresh_ms`: for the live page, how often it requests new content.

    `browse`: names of topics link to topics/NAME, relative to the page.
    Cost: 0.5 s and 2.3 MB for 1,000 partitions of 20 segments; the drawing is bounded.
    """
    return document(
        f"{report.path} - sparklog", content(report, browse=browse), refresh_ms=refresh_ms
    )


def content(report: LogReport, *, browse: bool = False) -> Html:
    """Return the content of the page's main element."""
    found: dict[str, Child] = {
        "topics": topics_section(report, browse=browse),
        "growth": growth_section(report),
        "segments": segments_section(report, browse=browse),
        "retention": retention_section(report),
        "compaction": compaction_section(report),
        "commits": commits_section(report),
        "readers": readers_section(report, browse=browse),
        "directories": directories_section(report),
    }
    links = [el("a", _SECTIONS[name], href=f"#{name}") for name, part in found.items() if part]
    return Html.join(
        [
            header(report),
            health_section(report.health),
            notices(report),
            tiles(report),
            el("nav", links, aria_label="Sections"),
            *found.values(),
        ]
    )
