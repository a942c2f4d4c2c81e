"""Topics and records as pages and as JSON: what is shown, of which logs, and in what time."""

import html
import http.client
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.open_log import check_log
from sparklog.clock import system_clock
from sparklog.common import TopicPartition
from sparklog.errors import StorageUnavailableError
from sparklog.log.log import home_of
from sparklog.network.addresses import Address
from sparklog.opening import holds_own_log, open_log
from sparklog.storage.groups import Reader
from sparklog.ui import jobs, log_browser, page_request
from sparklog.ui.access import Access
from sparklog.ui.browse import figures
from sparklog.ui.jobs import Jobs
from sparklog.ui.log_browser import LogBrowser
from sparklog.ui.report.build import make_report
from sparklog.ui.server import LiveServer
from sparklog.ui.site import LogSite
from tests.paths import ROOT
from tests.ui import UNHURRIED
from tests.ui.answers import answer, get
from tests.ui.demo import make_demo
from tests.ui.test_report_browser import FAULTS, PALE
from tests.waiting import until

HERE = Address("127.0.0.1", 0)
T0 = 1_700_000_000_000
TOKEN = "0123456789abcdef0123"


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes, a look goes to its end; tests of what hangs say so."""
    for module, name in (
        (log_browser, "CHECK_MS"), (page_request, "TIME_MS"), (figures, "CHECK_MS"),
        (jobs, "QUEUE_MS"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 240_000)


def site_of(path: Path | str, *, asks: bool = False) -> LogSite:
    def opened(stopped: Callable[[], bool]) -> Any:
        check_log(str(path), offline=True)
        return open_log(path, stopped=stopped)

    browser = LogBrowser(str(path), opened, keeps_configs=lambda: holds_own_log(path))
    return LogSite(
        lambda: make_report(path), browser=browser, refresh_ms=200, asks=asks,
        jobs=Jobs(timeout_ms=240_000),
    )  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "log"
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        log.create_topic(
            "flights", partitions=3, config={"retention.ms": -1, "segment.ms": 3_600_000}
        )
        log.create_topic("customers", config={"cleanup.policy": "compact"})
        log.create_topic("empty")
        for n in range(6):
            values = [f'{{"n": {n * 100 + i}, "price": 1.10}}' for i in range(100)]
            times = pa.array([T0 + n * 100_000 + i * 1000 for i in range(100)], pa.timestamp("ms"))
            keys = [f"k{i % 7}" for i in range(100)]
            log.append("flights", pa.table({"key": keys, "value": values, "timestamp": times}))
        avro = b"\0\0\0\1\7\x02\x06foo\x80"
        log.append("customers", pa.table({"key": ["a", "b"], "value": [avro, None]}))
        query = Reader("audit", "query", name="<b>nightly")
        at = {TopicPartition("flights", 0): 5}
        home_of(log).groups.commit_query(query, at, now_ms=system_clock())
    return path


@pytest.fixture(scope="module")
def site(path: Path) -> LogSite:
    return site_of(path)


def test_topics(site: LogSite) -> None:
    document = get(site, "/api/topics")
    assert [topic["name"] for topic in document["topics"]] == ["customers", "empty", "flights"]
    flights = document["topics"][2]
    assert (flights["partitions"], flights["records"], flights["readers"]) == (3, 600, 1)
    assert flights["bytes"] > 1000
    assert flights["lag"] > 0
    by_records = ["flights", "customers", "empty"]
    for query, expected in (
        ("sort=records", by_records),
        ("sort=records&desc=1", by_records),
        ("sort=records&desc=0", by_records[::-1]),
        ("desc=true", ["flights", "empty", "customers"]),
        ("desc=0", ["customers", "empty", "flights"]),
    ):
        names = [t["name"] for t in get(site, f"/api/topics?{query}")["topics"]]
        assert names == expected, query
    assert "desc=maybe" in get(site, "/api/topics?desc=maybe", 400)["error"]
    assert "desc=maybe" in get(site, "/topics?desc=maybe", 400)
    assert "part=maybe" in get(site, "/topics?part=maybe", 400)
    assert [t["name"] for t in get(site, "/api/topics?q=LIGHT")["topics"]] == ["flights"]
    page = get(site, "/topics?sort=bytes")
    assert page.index(">flights<") < page.index(">customers<")
    assert 'href="./topics/flights"' in page
    assert "No topic name contains this text" in get(site, "/topics?q=nothing")
    assert "sort=up" in get(site, "/topics?sort=up", 400)


def test_a_topic(site: LogSite) -> None:
    document = get(site, "/api/topics/flights")
    parts = document["partition_list"]
    assert sum(p["end"] - p["start"] for p in parts) == 600
    configs = {c["name"]: c for c in document["configs"]}
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["is_default"]) == (
        "-1",
        False,
    )
    assert configs["segment.bytes"]["is_default"]
    reader = document["reader_list"][0]
    assert (reader["group"], reader["query"]) == ("audit", "<b>nightly")
    assert "&lt;b&gt;nightly (audit)" in get(site, "/topics/flights")
    page = get(site, "/topics/flights")
    assert (
        page.index("segment.ms") < page.index("have their defaults") < page.index("segment.bytes")
    )
    assert "audit" in page
    assert 'href="../topics/flights/records?partition=2"' in page
    assert "nope" in get(site, "/topics/nope", 404)


def test_a_rate_comes_with_the_second_look(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw", options={"flush": "none"}) as log:
        log.create_topic("t")
        site = site_of(tmp_path / "log")
        assert get(site, "/api/topics")["topics"][0]["records_per_second"] is None
        log.append("t", pa.table({"value": ["x"] * 50}))

        def rate() -> float | None:
            found: float | None = get(site, "/api/topics")["topics"][0]["records_per_second"]
            return found

        seen = until(rate, pause_s=0.2)
        assert seen is not None and 0 < seen < 50


def test_records_page_by_page(site: LogSite) -> None:
    """Links lead through all records of a partition, each once, forwards and backwards."""
    _, end = spans(site)[0]
    seen, query = [], "?from=earliest&limit=70"
    while query is not None:
        document = get(site, f"/api/topics/flights/records{query}")
        assert (document["log_start"], document["log_end"]) == (0, end)
        seen += [record["offset"] for record in document["records"]]
        assert document["ended"] == ("records" if document["next"] else "end")
        query = document["next"]
    assert seen == [*range(end)]
    page, seen = get(site, "/topics/flights/records?limit=70"), []
    while True:
        offsets = [int(n) for n in re.findall(r'data-key="r-0:(\d+)"', page)]
        seen = [n for n in offsets if n not in seen] + seen
        older = re.findall(r'href="[^"]*records([^"]*)"[^>]*rel="prev"', page)
        if not older:
            break
        page = get(site, f"/topics/flights/records{older[0].replace('&amp;', '&')}")
    assert seen == [*range(end)]
    assert 'rel="next"' in page


def spans(site: LogSite) -> dict[int, tuple[int, int]]:
    found = get(site, "/api/topics/flights")["partition_list"]
    return {one["partition"]: (one["start"], one["end"]) for one in found}


def test_records_from_a_time_and_an_offset(site: LogSite) -> None:
    records = "/api/topics/flights/records"
    for partition, (_, end) in spans(site).items():
        base = f"{records}?partition={partition}"
        times = [r["timestamp_ms"] for r in get(site, f"{base}&from=0&limit=500")["records"]]
        for text in ("2023-11-14T22:15:00%2B00:00", "2023-11-14T22:15:00", "2023-11-14T17:15-05"):
            found = get(site, f"{base}&from={text}&limit=500")["records"]
            first = next((n for n, ms in enumerate(times) if ms >= T0 + 100_000), end)
            assert [record["offset"] for record in found] == [*range(first, end)]
        assert [r["offset"] for r in get(site, base)["records"]] == [*range(max(end - 50, 0), end)]
        assert get(site, f"{base}&from=10&limit=2")["records"][1]["offset"] == 11
        assert get(site, f"{base}&from=99999")["records"] == []
    page = get(site, "/topics/flights/records?partition=1&from=10&limit=2")
    assert "offsets 10 to 11;" in page
    assert "there is no parameter text" in get(site, f"{records}?text=x", 400)["error"]


def test_one_record(site: LogSite) -> None:
    page = html.unescape(get(site, "/topics/flights/records/0/3"))
    assert '"price": 1.10' in page
    assert '{\n  "n"' in page
    text = html.unescape(get(site, "/topics/flights/records/0/3?as=text"))
    assert '{"n"' in text
    assert "00000000  7b 22" in get(site, "/topics/flights/records/0/3?as=hex")
    page = get(site, "/topics/customers/records")
    assert "schema id 263" in page
    assert "tombstone" in page
    one = get(site, "/api/topics/customers/records/0/0")
    assert (one["value"], one["value_schema_id"], one["value_base64"]) == (
        None, 263, "AAAAAQcCBmZvb4A=",
    )  # fmt: skip
    cut = get(site, "/api/topics/flights/records?limit=1&max_value_bytes=5")["records"][0]
    assert (cut["value"], cut["value_cut"], cut["value_bytes"] > 20) == ('{"n":', True, True)
    assert answer(site, "/topics/customers/records/0/0/value")[1] == b"\0\0\0\1\7\x02\x06foo\x80"
    assert "null" in get(site, "/topics/customers/records/0/1/value", 400)
    assert "it has offsets [0," in get(site, "/topics/flights/records/0/9999", 404)


def test_the_page_of_an_error_leads_back(site: LogSite) -> None:
    """A page of an error keeps the topic's links and the form, which has what was typed."""
    for target, status, typed in (
        ("/topics/flights/records?from=xyz&partition=1", 400, {"partition": "1", "from": "xyz"}),
        ("/topics/flights/records?partition=7", 404, {"partition": "7"}),
        ("/topics/flights/records?limit=501", 400, {"limit": "501"}),
        ("/topics/flights/records/0/9999", 404, {"partition": "0", "from": "9999"}),
        ("/topics/flights/records/0/9999/value", 404, {"partition": "0", "from": "9999"}),
    ):
        page = get(site, target, status)
        root = "../" * (target.partition("?")[0].count("/") - 1)
        assert f'href="{root}topics/flights"' in page, target
        assert f'href="{root}topics/flights/records"' in page, target
        assert f'action="{root}topics/flights/records"' in page, target
        for name, value in typed.items():
            assert re.search(f'name="{name}" id="f-{name}" value="{value}"', page), target
    page = get(site, "/topics/flights?page=x", 400)
    assert 'href="../topics/flights"' in page
    assert "<form" not in page
    for target in ("/topics/nope", "/topics/nope/records", "/topics/nope/records/0/0"):
        page = get(site, target, 404)
        assert "topics/nope" not in page and "<form" not in page, target
        assert "All topics" in page


def test_an_unknown_path_is_a_page_for_a_browser(site: LogSite, path: Path) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    page = get(site, "/nope/page", 404, browser)
    assert "This page does not exist" in page
    assert 'href="../topics"' in page
    assert "/api" in get(site, "/nope/page", 404)
    assert "<" not in get(site, "/nope/page", 404)
    alone = get(LogSite(lambda: make_report(path)), "/nope", 404, browser)
    assert 'href="./"' in alone
    assert "topics" not in alone.partition("<main")[2].partition("</main>")[0]


def test_a_brokers_directory(tmp_path: Path) -> None:
    golden = ROOT / "tests" / "golden" / "kafka-4.1" / "logdir"
    before = sorted(p.stat().st_mtime_ns for p in golden.rglob("*"))
    site = site_of(golden)
    assert "configs of this topic are unknown" in html.unescape(get(site, "/topics/txn"))
    page = get(site, "/topics/txn/records?from=earliest&limit=500")
    assert "abort marker" in page
    assert "commit marker" in page
    assert "aborted</span>" in page
    assert get(site, "/api/topics/compacted/records?limit=500")["records"]
    assert sorted(p.stat().st_mtime_ns for p in golden.rglob("*")) == before


def test_a_tier_and_an_archive(tmp_path: Path) -> None:
    bucket = f"file://{tmp_path}/bucket"
    make_demo(tmp_path / "log", days=1, remote=bucket)
    for where in (tmp_path / "log", bucket):
        site = site_of(where)
        assert {t["name"] for t in get(site, "/api/topics")["topics"]} >= {"orders"}
        document = get(site, "/api/topics/orders/records?from=earliest&limit=500")
        assert len(document["records"]) == min(document["log_end"], 500) > 50
        assert document["faults"] == []
        get(site, "/topics/orders")
        get(site, "/")


def test_offline_partitions(tmp_path: Path) -> None:
    dirs = [tmp_path / name for name in "ab"]
    both = ",".join(map(str, dirs))
    with sparklog.open(both, "rw", options={"flush": "none"}) as log:
        log.create_topic("t", partitions=4)
        for n in range(8):
            log.append("t", pa.table({"value": [f"v{n}"]}), partition=n % 4)
    shutil.move(dirs[1], tmp_path / "away")
    site = site_of(both)
    assert "2 offline" in get(site, "/topics")
    assert get(site, "/api/topics")["topics"][0]["offline_partitions"] == [1, 3]
    assert len(get(site, "/api/topics/t/records?partition=2")["records"]) == 2
    document = get(site, "/api/topics/t/records?partition=1")
    assert document["records"] == [] and "offline" in document["faults"][0]
    assert "offline" in get(site, "/topics/t/records/1/0", 503)
    page = get(site, "/topics/t")
    assert page.count(">offline<") == 2


def test_a_log_that_vanishes_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "log"

    def make(topic: str) -> None:
        with sparklog.open(path, "rw", options={"flush": "none"}) as log:
            log.create_topic(topic)
            log.append(topic, pa.table({"value": [topic]}))

    make("one")
    site = site_of(path)
    get(site, "/topics/one/records")
    shutil.move(path, tmp_path / "away")
    for target in ("/topics/one/records", "/api/topics/one/records", "/"):
        get(site, target, 503)
    shutil.move(tmp_path / "away", path)
    get(site, "/topics/one/records")
    shutil.rmtree(path)
    make("two")
    assert get(site, "/api/topics/two/records")["records"][0]["value"] == "two"
    get(site, "/api/topics/one/records", 404)


# --- slow ones, and those that go away -----------------------------------------------------------


def test_what_hangs_is_answered_and_holds_nobody_else(path: Path) -> None:
    go = threading.Event()

    def hangs(stopped: Callable[[], bool]) -> Any:
        go.wait(240)
        raise StorageUnavailableError("it hung")

    browser = LogBrowser("slow", hangs)
    site = LogSite(lambda: make_report(path), browser=browser, jobs=Jobs(2, timeout_ms=200))
    assert "no answer within" in get(site, "/topics", 503)
    get(site, "/")
    go.set()


def test_who_goes_away_ends_the_work() -> None:
    asked, told = threading.Event(), threading.Event()

    def opened(stopped: Callable[[], bool]) -> Any:
        asked.set()
        until(stopped)
        told.set()
        raise StorageUnavailableError("it hung")

    browser = LogBrowser("slow", opened)
    site = LogSite(lambda: make_report("slow"), browser=browser, jobs=Jobs(timeout_ms=240_000))
    with LiveServer(site, HERE, head_ms=UNHURRIED) as server:
        connection = socket.create_connection(("127.0.0.1", server.port), 240)
        connection.sendall(b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert asked.wait(240)
        connection.sendall(b"more")  # which is no part of a request
        assert not told.wait(0.3)
        connection.close()
        assert told.wait(240)


def test_a_fault_of_ours_is_told_without_its_words(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Any:
        raise ZeroDivisionError("secret")

    text = get(LogSite(broken), "/", 500)
    assert "secret" not in text
    assert "secret" in caplog.text


# --- in a browser --------------------------------------------------------------------------------


@pytest.fixture
def server(path: Path) -> Iterator[LiveServer]:
    with LiveServer(site_of(path), HERE, head_ms=UNHURRIED) as found:
        yield found


DEEP_WIDTHS = [pytest.param(width, marks=pytest.mark.deep) for width in (800, 1440)]


@pytest.mark.parametrize("width", [390, *DEEP_WIDTHS])
def test_nothing_is_cut_or_pale(browser: Any, path: Path, width: int) -> None:
    access, said = Access(token=TOKEN), list[str]()

    def heard(message: Any) -> None:
        if message.type in ("error", "warning") and "the server responded" not in message.text:
            said.append(message.text)

    with LiveServer(site_of(path, asks=True), HERE, access=access, head_ms=UNHURRIED) as server:
        base = server.url.rstrip("/")
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            )
            page = context.new_page()
            page.on("console", heard)
            page.on("pageerror", lambda error: said.append(str(error)))
            page.goto(f"{base}/login")
            for token in ("wrong", TOKEN):
                check_layout(page, "/login")
                page.locator("#token").fill(token)
                page.get_by_role("button", name="Show the log").click()
            page.wait_for_url(server.url)
            for target in (
                "/topics",
                "/topics/flights",
                "/topics/customers/records",
                "/topics/flights/records?from=3&limit=5",
                "/topics/flights/records/0/3",
                "/topics/nope",
                "/",
            ):
                page.goto(base + target)
                check_layout(page, target)
            context.close()
    assert said == []


def check_layout(page: Any, target: str) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })")
    scrolled = ("out of its box", "outside: 0000")  # shortened lines, and hex
    faults = page.evaluate(FAULTS)["faults"]
    assert [fault for fault in faults if not fault.startswith(scrolled)] == [], target
    assert page.evaluate(PALE)["pale"] == [], target


def test_clicking_through(browser: Any, server: LiveServer) -> None:
    """Filter as one types, a topic, its records, from a time, the page before, and back."""
    context = browser.new_context(timezone_id="America/New_York")
    page, said = context.new_page(), []
    page.on("console", lambda m: said.append(m.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"{server.url}topics")
    page.locator("#q").fill("fli")
    assert page.locator("main tbody tr:visible").count() == 1
    page.wait_for_timeout(700)  # new content came in: what was typed is still there
    assert page.locator("#q").input_value() == "fli"
    assert page.locator("main tbody tr:visible").count() == 1
    page.get_by_role("link", name="flights").click()
    page.wait_for_url("**/topics/flights*")  # the page of topics has a link "Records", too
    page.get_by_role("link", name="Records").click()
    assert page.locator(".records li").count() == 50
    page.locator(".records summary").first.click()
    assert page.locator(".records pre").first.is_visible()
    page.locator("#f-from").fill("2023-11-14 17:15")
    page.get_by_role("button", name="Show", exact=True).click()
    assert "from=2023-11-14T17%3A15-05%3A00" in page.url
    assert "partition=" not in page.url
    page.get_by_role("link", name="Older").click()
    first = page.url
    assert page.locator(".records li").count() == 50
    page.go_back()
    page.go_forward()
    assert page.url == first
    assert said == []
    context.close()


def test_without_javascript(browser: Any, server: LiveServer) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{server.url}topics")
    badge = page.locator("#live").inner_text()
    assert re.fullmatch(r"as of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", badge)
    page.locator("#q").fill("fli")
    page.get_by_role("button", name="Filter").click()
    assert page.locator("main tbody tr").count() == 1
    page.get_by_role("link", name="flights").click()
    page.get_by_role("link", name="Records").click()
    page.locator("#f-from").fill("3")
    page.get_by_role("button", name="Show", exact=True).click()
    assert page.locator(".records li").count() == 50
    page.locator(".records summary").first.click()
    page.get_by_role("link", name="The whole record").first.click()
    assert "price" in page.locator("pre").last.inner_text()
    context.close()


def test_a_head_is_a_get_without_its_body(server: LiveServer) -> None:
    for target in ("/topics", "/api/topics/flights/records", "/topics/customers/records/0/0/value"):
        sizes = []
        for method in ("GET", "HEAD"):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=240)
            connection.request(method, target)
            answer = connection.getresponse()
            assert answer.status == HTTPStatus.OK
            sizes.append((int(answer.headers["Content-Length"]), len(answer.read())))
            connection.close()
        assert sizes[0][0] == sizes[0][1]
        assert sizes[1][1] == 0
