"""The dashboard: its shape, its expressions, and each of its panels over a real log's numbers.

A real Prometheus scrapes a real `sparklog serve` and says for each panel what Grafana would get.
Where there is a Grafana (GRAFANA, or PATH), it draws the dashboard in a real browser as well.
"""

from __future__ import annotations

import functools
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from confluent_kafka import Producer

import sparklog
from sparklog.cli.app import run
from sparklog.format.compression import Codec
from sparklog.service.metrics import dashboard
from sparklog.storage.staging import Framing
from tests import browser, grafana, prometheus
from tests.jars import Unavailable
from tests.micro_batches import commit_batch
from tests.prometheus import Prometheus
from tests.promql import unknown
from tests.promtool import promtool
from tests.waiting import until

Panel = dict[str, Any]
BOARD = json.loads(dashboard())


def panels(*, rows: bool = False) -> list[tuple[str, Panel]]:
    """(title of its row, panel) of all panels, those of folded rows as well."""
    found, row = [], ""
    for panel in BOARD["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
            found += [(row, panel)] if rows else []
            found += [(row, inner) for inner in panel["panels"]]
        else:
            found.append((row, panel))
    return found


def expressions() -> list[str]:
    """All that is asked, of panels and of annotations."""
    asked = [target["expr"] for _, panel in panels() for target in panel["targets"]]
    return asked + [each["expr"] for each in BOARD["annotations"]["list"]]


# --- its shape -----------------------------------------------------------------------------------


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["metrics", "--dashboard"]) == 0
    assert json.loads(capsys.readouterr().out) == BOARD


def test_panels_have_room_and_a_number_of_their_own() -> None:
    every = [panel for _, panel in panels(rows=True)]
    assert len({panel["id"] for panel in every}) == len(every)
    taken: dict[tuple[int, int], str] = {}
    for panel in every:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        for x in range(grid["x"], grid["x"] + grid["w"]):
            for y in range(grid["y"], grid["y"] + grid["h"]):
                key = x, y
                assert key not in taken, f"{panel['title']} lies on {taken[key]}"
                taken[key] = panel["title"]


def test_every_panel_says_what_it_shows() -> None:
    titles = [panel["title"] for _, panel in panels()]
    assert len(set(titles)) == len(titles)
    for _, panel in panels():
        assert panel["description"].endswith((".", "`")), panel["title"]
        assert {target["refId"] for target in panel["targets"]} <= set("ABC")
        for target in panel["targets"]:
            labels = re.findall(r"{{(\w+)}}", target["legendFormat"])
            assert all(re.search(rf"\b{label}\b", target["expr"]) for label in labels)


def test_every_variable_that_is_used_is_there() -> None:
    names = {each["name"] for each in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD)))
    assert used - {"__rate_interval", "__all"} <= names
    assert names - {"log"} <= used  # who chooses a log chooses its instances


# --- its expressions -----------------------------------------------------------------------------


def test_promtool_reads_each_expression(tmp_path: Path) -> None:
    try:
        judge = promtool()
    except Unavailable as reason:
        pytest.skip(str(reason))
    rules = [
        {"record": f"panel:{at}", "expr": filled(expr, "host:1", "[5m]")}
        for at, expr in enumerate(expressions())
    ]
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run([judge, "check", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("expression", [e for e in expressions() if not e.startswith("ALERTS")])
def test_an_expression_asks_for_metrics_and_labels_that_there_are(expression: str) -> None:
    if "ALERTS" not in expression:
        assert unknown(expression) == []


def test_a_name_that_there_is_not_is_found() -> None:
    assert unknown("sum(sparklog_nothing)") == ["sparklog_nothing"]
    assert unknown('kafka_log_log_size{colour="red"}') == ["kafka_log_log_size{colour}"]
    assert unknown("sum by (colour) (kafka_log_log_size)") == ["by colour"]
    assert unknown("sparklog_commit_size_bytes") == ["sparklog_commit_size_bytes"]  # a histogram


def filled(expression: str, instance: str, rate: str) -> str:
    """The expression as Grafana sends it: variables in their places, and all topics."""
    for name, value in {
        "[$__rate_interval]": rate, "$job": "sparklog", "$instance": re.escape(instance),
        "$topic": ".*",
    }.items():  # fmt: skip
        expression = expression.replace(name, value.replace("\\", "\\\\"))
    return expression


# --- over a real log -----------------------------------------------------------------------------

QUICK = (
    "log.initial.task.delay.ms=0", "log.retention.check.interval.ms=500",
    "log.cleaner.backoff.ms=500", "remote.log.manager.task.interval.ms=500",
)  # fmt: skip
WITHOUT = "Streaming queries (watch_queries)"  # no Spark here


@dataclass(frozen=True)
class Scraped:
    """What is watched. `instances`: {its path: where its endpoint is}."""

    prometheus: Prometheus
    instances: dict[str, str]
    in_dir: str
    in_store: str


@contextmanager
def served(path: str, *more: str) -> Iterator[dict[str, Any]]:
    options = [word for option in QUICK for word in ("--option", option)]
    command = [sys.executable, "-m", "sparklog.cli", "serve", path, "--json", *options, *more]
    with subprocess.Popen(
        [*command, "--metrics-port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(240)


class Traffic(threading.Thread):
    """Commits, reads, overwrites and lets expire, until `stop`."""

    def __init__(self, path: str, store: str, kafka: str) -> None:
        super().__init__(name="traffic", daemon=True)
        self._path, self._store, self._kafka = path, store, kafka
        self.stop = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with (
                sparklog.open(self._path, "rw") as log,
                sparklog.open(self._store, "rw") as other,
            ):
                self._work(log, other)
        except BaseException as error:  # told at the end
            self.error = error

    def _work(self, log: sparklog.Log, other: sparklog.Log) -> None:
        small = {"internal.segment.bytes": "40000"}
        log.create_topic("orders", 2, small | {"remote.storage.enable": "true"})
        log.create_topic("clicks", 1, small | {"retention.bytes": "60000"})
        log.create_topic("customers", 1, small | {
            "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01",
        })  # fmt: skip
        other.create_topic("orders", 1)
        producer = Producer({"bootstrap.servers": self._kafka, "linger.ms": 0})
        batch = 0
        while not self.stop.wait(0.2):
            rows = pa.table({"key": [f"k{n % 50}" for n in range(300)],
                             "value": [f"{batch} {n:080}" for n in range(300)]})  # fmt: skip
            framing = Framing(codec=Codec.ZSTD, batch_size=4000)
            commit_batch(log, "enrich/sink", batch, rows, topic="orders", framing=framing)
            for topic in ("clicks", "customers"):
                log.append(topic, rows)
            ends = {number: span[1] - 10 for number, span in log.offsets("orders").items()}
            log.commit_offsets("billing", {"orders": ends})
            other.append("orders", rows)
            producer.produce("clicks", value=b"from a client")
            producer.flush(240)
            batch += 1


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """A log with a tier that Kafka's clients use, one in a store, and traffic on both."""
    try:
        prometheus.find()
    except Unavailable as reason:
        pytest.skip(str(reason))
    base = tmp_path_factory.mktemp("dashboard")
    path, store = str(base / "log"), f"file://{base}/store"
    for each in (path, store):
        sparklog.open(each, "rw").close()
    with ExitStack() as stack:
        remote = f"file://{base}/remote"
        first = stack.enter_context(served(path, "--kafka", "0", "--remote", remote))
        second = stack.enter_context(served(store))
        traffic = Traffic(path, store, first["kafka"])
        traffic.start()
        targets = [urlsplit(each["metrics"]).netloc for each in (first, second)]
        given = prometheus.running(base, targets)
        found = Scraped(stack.enter_context(given), dict(zip((path, store), targets, strict=True)),
                        path, store)  # fmt: skip
        yield found
        traffic.stop.set()
        traffic.join(240)
        if traffic.error is not None:
            raise traffic.error


def empty_panels(scraped: Scraped) -> list[str]:
    """Titles of panels of which a query finds nothing now."""
    found = []
    for row, panel in panels():
        path = scraped.in_store if row == "A log in a store" else scraped.in_dir
        for target in panel["targets"]:
            expression = filled(target["expr"], scraped.instances[path], "[10s]")
            series = scraped.prometheus.query(expression)
            if not series or all(one["value"][1] == "NaN" for one in series):
                found.append(f"{row}: {panel['title']}")
    return found


@pytest.mark.deep
def test_each_panel_has_series_in_a_real_prometheus(scraped: Scraped) -> None:
    def empty() -> list[str]:
        return [title for title in empty_panels(scraped) if not title.startswith(WITHOUT)]

    until(lambda: not empty(), "series in all panels", state=empty, pause_s=1)


@pytest.mark.deep
def test_variables_have_values_in_a_real_prometheus(scraped: Scraped) -> None:
    asked = {
        each["name"]: each["query"]["query"]
        for each in BOARD["templating"]["list"]
        if each["type"] == "query"
    }
    chosen = {"job": "sparklog", "log": scraped.in_store}
    for name in ("job", "log", "instance", "topic"):
        given = re.fullmatch(r"label_values\((.*), (\w+)\)", asked[name])
        assert given is not None
        selector = given[1]
        for known, value in chosen.items():
            selector = selector.replace(f"${known}", value)
        question = functools.partial(
            scraped.prometheus.get, f"label/{given[2]}/values", **{"match[]": selector}
        )
        values = until(question, f"values of {name}", pause_s=0.5)  # of the first scrapes
        assert chosen.get(name, values[0]) in values, name
        chosen[name] = chosen.get(name, values[0])
        if name == "instance":
            assert values == [scraped.instances[scraped.in_store]]


@pytest.mark.deep
def test_the_rules_are_well_in_a_real_prometheus(scraped: Scraped) -> None:
    def unwell(*states: str) -> list[Any]:
        (group,) = scraped.prometheus.get("rules")["groups"]
        return [rule for rule in group["rules"] if rule["health"] in states]

    until(lambda: not unwell("unknown"), state=lambda: unwell("unknown"), pause_s=0.5)
    assert unwell("err") == []
    instance = scraped.instances[scraped.in_dir]
    wanted = {
        (f"{instance} {scraped.in_dir}", topic) for topic in ("orders", "clicks", "customers")
    } | {(scraped.in_store, "orders")}

    def known() -> set[tuple[str, str]]:
        ends = scraped.prometheus.query("sparklog:topic_end_offset")
        return {(one["metric"]["log"], one["metric"]["topic"]) for one in ends}

    until(lambda: known() == wanted, "the ends of all topics", state=known, pause_s=0.5)


# --- in Grafana ----------------------------------------------------------------------------------


@pytest.mark.deep
def test_grafana_draws_every_panel(scraped: Scraped, tmp_path: Path) -> None:
    with ExitStack() as stack:
        try:
            url = stack.enter_context(grafana.running(tmp_path, scraped.prometheus.url, BOARD))
            driver = stack.enter_context(browser.started())
        except (Unavailable, browser.Unavailable) as reason:
            pytest.skip(str(reason))
        for path, folded in ((scraped.in_dir, False), (scraped.in_store, True)):
            drawn = grafana.look(driver, url, path, BOARD)
            wanted = {
                panel["title"] for row, panel in panels()
                if row != WITHOUT and (row == "A log in a store") == folded
            }  # fmt: skip
            assert drawn.errors == []
            assert wanted - set(drawn.with_data) == set()


# --- its schema ----------------------------------------------------------------------------------


@pytest.mark.deep
def test_it_is_what_grafanas_own_types_ask_for(tmp_path: Path) -> None:
    """TypeScript holds the JSON against @grafana/schema, the dashboard and its panels' options."""
    try:
        compiler = grafana.types()
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert grafana.type_faults(compiler, BOARD, tmp_path) == ""
    bad = json.loads(json.dumps(BOARD))
    bad["panels"][1]["fieldConfig"]["defaults"]["colour"] = "red"
    assert "colour" in grafana.type_faults(compiler, bad, tmp_path)
    bad = json.loads(json.dumps(BOARD))
    bad["panels"][1]["options"]["graphMode"] = "nothing"
    assert '"nothing"' in grafana.type_faults(compiler, bad, tmp_path)
