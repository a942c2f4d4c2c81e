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
        ("Refused by the source, and every other `kafka.*`", _refused(source.REFUSED)),
        ("The source on a checkpoint's state", markdown(STATE_OPTIONS.values())),
        ("The sink: `SegmentSink`, `df.write`, `df.writeStream`", markdown(sink.OPTIONS.values())),
        ("Refused by the sink, and every other `kafka.*`", _refused(sink.REFUSED)),
        ("Topic configs", markdown(KEYS.values())),
        ("The log: `sparklog.open(..., options={...})`", markdown(LOG_KEYS.values())),
        ("Reading remote segments: options of `sparklog.open`", markdown(REMOTE_KEYS.values())),
        ("The service: `Service(..., options={...})`", markdown(SERVICE_KEYS.values())),
        ("Kafka's clients: `Endpoint(..., options={...})`", markdown(ENDPOINT_KEYS.values())),
        ("Log-backed checkpoints: Spark's conf", markdown(CHECKPOINT_KEYS.values())),
    ]
    intro = (
        "# Options and configs\n\n"
        "Spark's options come in any case. An option of Spark's Kafka connector, or of Delta, that "
        "has no meaning here is refused by name, with what to do instead. *also* lists Kafka's "
        "broker-wide names for the same thing, which are taken as well.\n"
    )
    return _MADE + intro + "".join(f"\n## {title}\n\n{table}" for title, table in parts)


def _refused(entries: dict[str, str]) -> str:
    rows = "".join(f"| `{name}` | {why} |\n" for name, why in entries.items())
    return f"| refused | because |\n|--|--|\n{rows}"


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


_OF_KAFKA = """What Kafka's documentation ("Monitoring", from 4.1 on) has for brokers, and what each
of it is here. Names that are the same are those that the JMX exporter makes of the MBeans by its
usual rules, in lower case; what Kafka has as a rate is counted here, and `rate(...)` makes one.
"""

_ALERTS = """`tests/service/test_alerts.py` drives a log into these, scrapes it, and asks promtool
which rules fire; what compares with hours and days before is played through in
`tests/service/test_alert_rules.py`, with services that move, endpoints that are away, topics that
are deleted. `SparklogTopicStalled` tells of a topic for a day, then takes it for done; it knows a
topic's rhythm after two days, a weekly one after the first week.
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

The endpoint needs `pip install 'sparklog[metrics]'` (`sparklog[cli]` has it). `/healthz` answers
200, or 503 with what is wrong. It listens on 127.0.0.1 unless `--metrics-address` says otherwise,
and has neither TLS nor a password: put a proxy before it where others can reach it.

*The log*: read from the log's files at each scrape, without a lock, so it is true of all writers
and readers in whatever process. *This process*: what only the process that does it knows: fsync
times, replays that were dropped, failures (if the sinks run in the driver, start the service
there), the service's own rounds. Counters begin with the endpoint and never count history twice;
`sparklog metrics` counts the whole ledger.

A log dir is offline (`kafka_log_logmanager_logdirectoryoffline`, `/healthz`) if it can't be read,
if the service's trial write there fails (4 KiB once a minute, so a full, failing or read-only disk
shows though nobody commits), or if any session of the host failed when it last wrote there: that
one holds a lock on a byte of `sparklog.lock` until a write succeeds or its process ends, which
needs no room and no right to write. So a quota or a limit of one process shows as well; a sink
shows the failures of its tasks. What doesn't: a process that gives up at once, or can't even open
the log; a commit that is refused for want of room before anything is written
(`sparklog_disk_free_bytes` tells), and processes on a file system without sound locks, which
sparklog refuses to write to anyway.

With 10,000 partitions the first look takes 4.4 s of CPU (made when the service starts), each
later one 0.2 s, and 0.45 s for the text of 2.3 MB; counting costs a commit 12 us. In the process
of a service, `sparklog.sink.watch_queries(spark)` adds what Spark knows of its streaming queries
to the service's endpoint. Spark 4.3 lets no Python source fill `sources[].metrics` of a query's
progress: `sparklog.sink.offsets_behind_latest(progress)` has what Kafka's connector has there.
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


_APIS = """# Requests of Kafka's protocol that are answered

By `sparklog serve --kafka` and `sparklog.kafka.Endpoint`: [kafka.md](kafka.md). The lowest versions
are those of Kafka 4 (KIP-896), the highest those of Kafka 4.1.
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
