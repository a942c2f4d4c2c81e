"""The list of topics and the page of a topic, from their figures."""

import re
from dataclasses import replace

import pytest

from sparklog.config import NEW_TOPICS, TopicConfig
from sparklog.storage.view import TopicInfo
from sparklog.ui.browse.figures import PartitionFigures, TopicFigures
from sparklog.ui.page_request import PageRequest
from sparklog.ui.record_pages import failed_content
from sparklog.ui.templating import render
from sparklog.ui.topic_pages import (
    PAGE_PARTITIONS,
    PAGE_TOPICS,
    READERS_MAX,
    TopicView,
    topic_content,
    topics_content,
)

HOSTILE = "<script>\"'&\x1b"


def figures(name: str, *, partitions: int = 1) -> TopicFigures:
    info = TopicInfo(name, "id", partitions, TopicConfig(), {0: f"/log/{name}-0"})
    return TopicFigures(info=info, records=7)


def links(page: str) -> list[str]:
    return [url.replace("&amp;", "&") for url in re.findall(r'href="([^"]*)"', page)]


def test_links_between_pages_of_topics() -> None:
    """Also in content that refreshes a live page, whose links must not lead to mere content."""
    topics = [figures(f"t{n:04}") for n in range(2 * PAGE_TOPICS + 1)]
    request = PageRequest.parse("/topics?q=t&sort=lag&page=2&part=1")
    page = topics_content(topics, request)
    assert page.count("<tr") == 1 + PAGE_TOPICS
    assert {"?q=t&sort=lag&page=1", "?q=t&sort=lag&page=3"} <= set(links(page))
    assert not [url for url in links(page) if "part=" in url]
    assert "Page 2 of 3" in page
    last = topics_content(topics, PageRequest.parse("/topics?page=3"))
    assert "?page=2" in links(last)
    assert "?page=4" not in links(last)
    assert "Page" not in topics_content(topics[:PAGE_TOPICS], PageRequest.parse("/topics"))


@pytest.mark.parametrize(
    ("query", "arrow", "following"),
    [
        ("", "name ↑", "sort=name&desc=1"),
        ("?sort=name&desc=1", "name ↓", "sort=name"),
        ("?sort=name&desc=0", "name ↑", "sort=name&desc=1"),
        ("?sort=lag", "lag ↓", "sort=lag&desc=0"),
        ("?sort=lag&desc=1", "lag ↓", "sort=lag&desc=0"),
        ("?sort=lag&desc=0&q=a", "lag ↑", "q=a&sort=lag"),
        ("?sort=bytes", "size ↓", "sort=bytes&desc=0"),
    ],
)
def test_the_current_order_is_marked_and_can_be_reversed(
    query: str, arrow: str, following: str
) -> None:
    page = topics_content([figures("a")], PageRequest.parse(f"/topics{query}"))
    current = re.findall(r'<a href="([^"]*)" aria-current="true">([^<]*)</a>', page)
    url = f"./topics?{following}".replace("&", "&amp;")
    assert current == [(url, arrow)]


def view(name: str, *, partitions: int, start: int, readers: int, group: str = "g") -> TopicView:
    rows = [
        {"group": group, "query": None, "kind": "consumer", "partition": n, "offset": n, "lag": n,
         "time": 0, "expired": False}
        for n in range(readers)
    ]  # fmt: skip
    return TopicView(
        figures=figures(name, partitions=partitions),
        partitions=[PartitionFigures(partition=start, end=3, size_bytes=5, directory="/log/d")],
        start=start, readers=rows, now_ms=1000, has_configs=True,
    )  # fmt: skip


def test_long_lists_of_a_topic_are_divided() -> None:
    whole, readers = 3 * PAGE_PARTITIONS, READERS_MAX + 2
    found = view("t", partitions=whole, start=PAGE_PARTITIONS, readers=readers)
    page = topic_content(found, PageRequest.parse("/topics/t?page=2&part=1"))
    assert {"?page=1", "?page=3"} <= set(links(page))
    assert "Page 2 of 3" in page
    assert "2 more positions" in page
    assert page.index(f"<span>{READERS_MAX + 1}</span>") < page.index("<span>100</span>")


def test_expired_readers_are_marked() -> None:
    found = view("t", partitions=1, start=0, readers=1)
    plain = topic_content(found, PageRequest.parse("/topics/t"))
    assert "<span>consumer</span>" in plain
    found.readers[0]["expired"] = True
    marked = topic_content(found, PageRequest.parse("/topics/t"))
    assert '<span>consumer <span class="chip">expired</span></span>' in marked


def test_configs_are_shown_in_larger_units() -> None:
    found = view("t", partitions=1, start=0, readers=0)
    page = topic_content(found, PageRequest.parse("/topics/t"))
    assert "604800000</span> <span class=\"nil\">(7\N{NO-BREAK SPACE}d)</span>" in page
    assert "1073741824</span> <span class=\"nil\">(1.0\N{NO-BREAK SPACE}GiB)</span>" in page
    assert "9223372036854775807</span> <span class=\"nil\">(no limit)</span>" in page
    assert "No reader is registered" in page
    assert "</code> to -1 on a topic" not in page


def test_an_unset_retention_is_explained() -> None:
    found = view("t", partitions=1, start=0, readers=0)
    info = replace(found.figures.info, config=NEW_TOPICS)
    found = replace(found, figures=replace(found.figures, info=info))
    page = topic_content(found, PageRequest.parse("/topics/t"))
    assert '-1</span> <span class="nil">(no limit)</span>' in page
    explained = page.index("</code> to -1 on a topic")
    assert page.index("(no limit)") < explained < page.index("<details")


def test_every_value_is_escaped() -> None:
    request = PageRequest.parse("/topics")
    shown = view(HOSTILE, partitions=1, start=0, readers=1, group=HOSTILE)
    for page in (
        topics_content([figures(HOSTILE)], request),
        topic_content(shown, request),
        render("frame.html", root="./", path=HOSTILE, here="Topics", level=HOSTILE, sign_out=True),
        render("login.html", root="./", to=HOSTILE, wrong=True),
        failed_content(HOSTILE, HOSTILE, request, topic=HOSTILE, place={"offset": HOSTILE}),
    ):
        assert "&lt;script&gt;&#34;&#39;&amp;\ufffd" in page
        assert "<script" not in page
        assert "\x1b" not in page
