"""The reference pages of docs/, made from the code; `python -m tests.reference` writes them."""

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import yaml

import sparklog
from sparklog.cli.app import app
from sparklog.cli.arguments import ARGUMENTS
from sparklog.cli.examples import examples
from sparklog.config import KEYS, LOG_KEYS
from sparklog.configdef import markdown
from sparklog.kafka import Endpoint, network_metrics
from sparklog.kafka.messages import Api
from sparklog.kafka.options import ENDPOINT_KEYS
from sparklog.service import metrics
from sparklog.service.metrics.names import metrics_markdown
from sparklog.service.options import SERVICE_KEYS
from sparklog.session.setup import CHECKPOINT_KEYS
from sparklog.sink import options as sink
from sparklog.sink import progress
from sparklog.source import options as source
from sparklog.source.state_options import STATE_OPTIONS
from sparklog.tiered.reading.options import REMOTE_KEYS
from tests import public_api, slow_tests
from tests.kafka_metrics import kafka_markdown
from tests.paths import ROOT

DOCS = ROOT / "docs"
_MADE = "<!-- Made from the code: python -m tests.reference; tests/test_docs.py checks it. -->\n"


def options_page() -> str:
    """All options and configs, a table for each place that takes them."""
    parts = [
        ("The source: `spark.read` and `spark.readStream`", markdown(source.OPTIONS.values())),
        ("Rejected by the source, and every other `kafka.*`", _refused(source.REFUSED)),
        ("The source on a checkpoint's state", markdown(STATE_OPTIONS.values())),
        ("The sink: `SegmentSink`, `df.write`, `df.writeStream`", markdown(sink.OPTIONS.values())),
        ("Rejected by the sink, and every other `kafka.*`", _refused(sink.REFUSED)),
        ("Topic configs", markdown(KEYS.values())),
        ("The log: `sparklog.open(..., options={...})`", markdown(LOG_KEYS.values())),
        ("Reading remote segments: options of `sparklog.open`", markdown(REMOTE_KEYS.values())),
        ("The service: `Service(..., options={...})`", markdown(SERVICE_KEYS.values())),
        ("Kafka's clients: `Endpoint(..., options={...})`", markdown(ENDPOINT_KEYS.values())),
        ("Log-backed checkpoints: Spark's conf", markdown(CHECKPOINT_KEYS.values())),
    ]
    intro = (
        "# Options and configs\n\n"
        "The case of Spark's options does not matter. An option of Spark's Kafka connector, or of "
        "Delta, without a meaning in sparklog is rejected by name, with the option to use instead. "
        "*also* lists Kafka's broker-wide names of an option, which are accepted as well.\n"
    )
    return _MADE + intro + "".join(f"\n## {title}\n\n{table}" for title, table in parts)


def _refused(entries: dict[str, str]) -> str:
    rows = "".join(f"| `{name}` | {why} |\n" for name, why in entries.items())
    return f"| rejected | because |\n|--|--|\n{rows}"


def cli_page() -> str:
    """Every command of `sparklog` with its arguments and options."""
    intro = (
        "# The command line\n\n"
        "`pip install 'sparklog[cli]'`, or `sparklog[ui]` with `sparklog ui` and `serve --ui`. "
        f"{_paragraphs(app.help or '')}\n\n{_paragraphs(app.epilog or '')}\n"
    )
    found = list(commands(app))
    parts = [
        f"\n## {heading}\n"
        + "".join(_command(words, command) for words, command in found if words[0] in below)
        for heading, below in app.headings.items()
    ]
    return _MADE + intro + "".join(parts)


def commands(group: click.Group, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Go through a group's commands, and those of its groups: the words of each, and it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)
        else:
            yield (*words, name), command


def _command(words: tuple[str, ...], command: click.Command) -> str:
    # A command remembers the help option of the first context that asks for it.
    context = click.Context(
        command, info_name=" ".join(("sparklog", *words)), **app.context_settings
    )
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    rows = "".join(
        f"| `{_escaped(names)}` | {_escaped(text)} |\n"
        for names, text in (p.get_help_record(context) or ("", "") for p in command.params)
        if text  # the usage shows the arguments
    )
    names = [p.human_readable_name for p in command.params if isinstance(p, click.Argument)]
    described = zip(names, ARGUMENTS[" ".join(words)], strict=True)
    arguments = "".join(f"| `{name}` | {_escaped(text)} |\n" for name, text in described)
    table = f"\n| argument, option | |\n|--|--|\n{arguments}{rows}"
    calls = "\n".join(examples(" ".join(words)))
    title = " ".join(words)
    said = _paragraphs(command.help or "")
    return f"\n### {title}\n\n```\n{usage}\n```\n\n{said}\n\n```\n{calls}\n```\n{table}"


def _paragraphs(text: str) -> str:
    """Return the paragraphs of a help text, a line each."""
    return "\n\n".join(" ".join(p.split()) for p in re.split(r"\n\s*\n", text.strip()))


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def metrics_page() -> str:
    """Every metric of the endpoint, and every alert."""
    rules = yaml.safe_load((Path(metrics.__file__).parent / "alerts.yml").read_text())
    rows = "".join(
        f"| `{rule['alert']}` | {rule['labels']['severity']} | {rule.get('for', '-')} "
        f"| {_escaped(rule['annotations']['summary'])} |\n"
        for group in rules["groups"]
        for rule in group["rules"]
        if "alert" in rule
    )
    alerts = f"| alert | severity | after | |\n|--|--|--|--|\n{rows}"
    return (
        f"{_MADE}{_METRICS}\n## The endpoint of a log\n\n{metrics_markdown()}\n"
        f"## Kafka's clients, of `serve --kafka`\n\n{metrics_markdown(network_metrics.METRICS)}\n"
        f"## Spark's queries, by `watch_queries`\n\n{metrics_markdown(progress.METRICS)}\n"
        f"## Kafka's metrics\n\n{_OF_KAFKA}\n{kafka_markdown()}\n"
        f"## Alerts\n\n{_ALERTS}\n{alerts}"
    )


_OF_KAFKA = """The metrics that Kafka's documentation ("Monitoring", from 4.1 on) lists for brokers,
and the metric of sparklog for each. Equal names are the names that the JMX exporter derives from
the MBeans by its usual rules, in lower case. sparklog counts where Kafka reports a rate;
`rate(...)` computes the rate.
"""

_ALERTS = """`tests/service/test_alerts.py` drives a log into each alert, scrapes the endpoint, and
lets promtool evaluate the rules. `tests/service/test_alert_rules.py` simulates the rules that
compare hours and days: services that move, endpoints that are down, topics that are deleted.
`SparklogTopicStalled` reports a topic for a day and then considers the topic finished; the rule
knows the rhythm of a topic after two days, and a weekly rhythm after the first week.
"""

_METRICS = """# Metrics

<!-- invisible-code-block: python
import sparklog
with sparklog.open("/data/log", "rw") as log:
    log.create_topic("flights", 2)
-->

```sh
sparklog serve /data/log --metrics-port 9404 &  # or Service("/data/log", metrics_port=9404)
sparklog metrics /data/log --table              # once, from the log's files, without a service
sparklog metrics --alert-rules > sparklog.yml
```

The endpoint needs `pip install 'sparklog[metrics]'` (`sparklog[cli]` includes it). `/healthz`
answers 200, or 503 with the reason. The endpoint listens on 127.0.0.1 unless `--metrics-address`
sets another address, and has neither TLS nor a password: put a proxy in front of it if other hosts
can reach it.

*The log*: read from the log's files at each scrape, without a lock, and therefore correct for the
writers and readers of all processes. *This process*: known only to the process that does the work:
fsync times, dropped replays, failures (if the sinks run in the driver, start the service there),
the rounds of the service. Counters start at zero with the endpoint; `sparklog metrics` counts all
of the ledger.

A log dir is offline (`kafka_log_logmanager_logdirectoryoffline`, `/healthz`) if one of these holds:

- The log dir can't be read.
- The service's trial write fails (4 KiB per minute; this detects a full, failing or read-only disk
  although no process commits).
- The last write of any session of the host to this log dir failed. Such a session holds a lock on a
  byte of `sparklog.lock` until a write succeeds or its process ends, which requires neither space
  nor write permission. Quotas and limits of a single process therefore appear as well; a sink
  reports the failures of its tasks.

The metric does not detect a process that ends immediately or can't open the log, nor a commit that
is rejected for lack of space before the first write (see `sparklog_disk_free_bytes`).

With 10,000 partitions the first scrape takes 4.4 s of CPU (made when the service starts), each
later scrape 0.2 s, and the text of 2.3 MB 0.45 s; counting costs a commit 12 us. In the process of
a service, `sparklog.sink.watch_queries(spark)` adds the metrics of Spark's streaming queries to the
service's endpoint. Spark 4.3 does not let a Python source fill `sources[].metrics` of a query's
progress: `sparklog.sink.offsets_behind_latest(progress)` returns the values that Kafka's connector
reports there.
"""


def apis_page() -> str:
    """Every request of Kafka's protocol that an endpoint answers, and in which versions."""
    with (
        TemporaryDirectory() as directory,
        sparklog.open(directory + "/log", "rw") as log,
        Endpoint(log) as endpoint,
    ):
        served = dict(endpoint._server.served)
    rows = "".join(
        f"| {_in_words(api)} | {int(api)} | {each.versions[0]} to {each.versions[1]} |\n"
        for api, each in sorted(served.items())
    )
    return f"{_MADE}{_APIS}\n| request | API key | versions |\n|--|--|--|\n{rows}"


def _in_words(api: Api) -> str:
    """An API's name as Kafka's documentation writes it."""
    return "".join(word.capitalize() for word in api.name.split("_"))


_APIS = """# Supported Kafka APIs

`sparklog serve --kafka` and `sparklog.kafka.Endpoint` support these requests ([Kafka
clients](kafka.md)). The lowest versions are those of Kafka 4 (KIP-896), the highest those of Kafka
4.1.
"""

def api_index() -> str:
    """Return docs/api/index.md: all exported names of the public packages, one line each."""
    return _MADE + _API + "".join(_package(name) for name in public_api.PACKAGES)


def _package(name: str) -> str:
    rest = [f"`{each}`" for each, value in _exported(name).items()
            if not inspect.isroutine(value) and not inspect.isclass(value)]  # fmt: skip
    values = f"\nValues: {', '.join(rest)}.\n" if rest else ""
    groups = _groups(name).items()
    tables = "".join(_api_table(kind, name, entries) for kind, entries in groups)
    return f"\n## {name}\n{tables}{values}"


def _exported(package: str) -> dict[str, Any]:
    module = importlib.import_module(package)
    return {each: getattr(module, each) for each in module.__all__}


def _groups(package: str) -> dict[str, dict[str, Any]]:
    exported = _exported(package)
    classes = {each: value for each, value in exported.items() if inspect.isclass(value)}
    errors = {each: value for each, value in classes.items() if issubclass(value, BaseException)}
    return {
        "function": {each: value for each, value in exported.items() if inspect.isroutine(value)},
        "class": {each: value for each, value in classes.items() if each not in errors},
        "error": errors,
    }


def _api_table(kind: str, package: str, entries: Mapping[str, Any]) -> str:
    page = api_name(package)
    rows = "".join(
        f"| [`{name}`]({page}#{'class-' * inspect.isclass(value)}{name.lower()}) "
        f"| {_summary(value)} |\n"
        for name, value in entries.items()
    )
    return f"\n| {kind} | |\n|--|--|\n{rows}" if rows else ""


def _summary(value: Any) -> str:
    return _escaped((inspect.getdoc(value) or "").partition("\n\n")[0])


def api_name(package: str) -> str:
    """Return the name of the page of a public package in docs/api/."""
    return package.rpartition(".")[2] + ".md"


def api_page(package: str) -> str:
    """Return the page of a public package: directives that mkdocstrings replaces by docstrings."""
    directives = "".join(
        f"\n## {'class ' * inspect.isclass(value)}{name}\n\n::: {package}.{name}\n"
        + _WITHOUT_CONSTRUCTOR * (name in public_api.MADE_BY)
        for entries in _groups(package).values()
        for name, value in entries.items()
    )
    return f"{_MADE}# {package}\n\n{_API_PACKAGE}{directives}"


_WITHOUT_CONSTRUCTOR = (
    "    options:\n      show_root_heading: false\n      merge_init_into_class: false\n"
)
_API_PACKAGE = (
    "The site of `make docs` contains the docstrings on this page; `help(NAME)` prints the same "
    "text. [All names](index.md)\n"
)

_API = """# API reference

The names on this page are the public API of sparklog. Each links to its documentation: parameters
with units, results with shapes, errors, cost, and an example that runs in a test. The site of
`make docs` contains these pages; `help(sparklog.Log)` prints the same text. The package has type
hints.

All other modules and names are internal, also those without an underscore. They can change or
disappear in any release. Times and durations carry their unit in the name: `_ms` for milliseconds
(points in time are milliseconds since the epoch) and `_seconds` for seconds.

The commands ([cli.md](../cli.md)), the options of Spark's source and sink and of the log
([options.md](../options.md)), the metrics ([metrics.md](../metrics.md)), the pytest fixtures
([testing.md](../testing.md)) and the files on disk are public as well. So is `format("sparklog")`
of a Spark session.

The examples share a setting: the directory `log` is a log with the topic `flights` (2 partitions,
600 records), and `checkpoint` is the checkpoint of the Spark query that wrote it in three
micro-batches. The variable `log` is the open log, `bucket` the URL of an empty place in an object
store, and `spark` a Spark session; `sparklog` and `pa` (PyArrow) are imported.
"""

PAGES = {
    "api/index.md": api_index,
    **{f"api/{api_name(name)}": partial(api_page, name) for name in public_api.PACKAGES},
    "options.md": options_page,
    "cli.md": cli_page,
    "metrics.md": metrics_page,
    "kafka-apis.md": apis_page,
    slow_tests.PAGE.name: lambda: slow_tests.page_of(slow_tests.load()),
}

if __name__ == "__main__":
    (DOCS / "api").mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
