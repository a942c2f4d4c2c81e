"""`sparklog serve`: the service without Spark."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from threading import Event
from typing import Any, Final

import click

from sparklog.cli.command import Command, stop_signal
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.kafka_server import KafkaServer, KafkaServing
from sparklog.cli.open_log import check_directories, check_dry_run, check_log, to_read
from sparklog.cli.output import print_event, print_json
from sparklog.cli.pages import NO_PAGES, Pages, PagesOptions, pages_options
from sparklog.cli.parsing import key_values
from sparklog.cli.storage import StoreAccess, parse_storage_options, storage_option
from sparklog.quantities import size_text
from sparklog.service import Service
from sparklog.service.options import ServiceOptions
from sparklog.storage.round_report import Report
from sparklog.tiered.keyring import Keyring

_LOOK_S: Final = 1.0
_TASKS: Final = ("retain", "compact")


@click.command(cls=Command)
@click.argument("path")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE",
    help="Set an option of the service by Kafka's name. Repeatable.",
)  # fmt: skip
@click.option(
    "--remote", metavar="URL",
    help="Copy closed segments of tiered topics to this URL, s3://bucket/prefix. The log "
    "remembers it.",
)  # fmt: skip
@storage_option
@click.option(
    "--keyring", metavar="FILE",
    help="Encrypt copies with the keys in this file (docs/encryption.md). Required from then on.",
)  # fmt: skip
@click.option(
    "--plain", is_flag=True,
    help="Stop encrypting copies. Required once.",
)  # fmt: skip
@click.option(
    "--take-over", is_flag=True,
    help="Take the copies over for this log, whose log dir was restored or copied. Stop the other "
    "log first.",
)  # fmt: skip
@click.option(
    "--metrics-port", metavar="N", type=click.IntRange(0, 65535),
    help="Serve /metrics for Prometheus, and /healthz, on this port; 0 takes a free one.",
)  # fmt: skip
@click.option(
    "--metrics-address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
    help="Listen for --metrics-port at this address. 0.0.0.0 is every network of this host.",
)  # fmt: skip
@click.option(
    "--ui", "address", metavar="[HOST:]PORT",
    help="Show the log and its records live in a browser (docs/ui.md). The default host is "
    "127.0.0.1; port 0 takes a free one.",
)  # fmt: skip
@pages_options
@click.option(
    "--kafka", "kafka", metavar="[HOST:]PORT",
    help="Serve Kafka's clients (docs/kafka.md). The default host is 127.0.0.1; port 0 takes a "
    "free one.",
)  # fmt: skip
@click.option(
    "--kafka-option", "kafka_options", multiple=True, metavar="KEY=VALUE",
    help="Set an option of --kafka by Kafka's name. Repeatable.",
)  # fmt: skip
@click.option(
    "--read-only", is_flag=True,
    help="Run only --kafka and --ui, and let clients only read. Use this for an archive or a "
    "broker's directory.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Do one whole round and stop.")
@click.option("--dry-run", is_flag=True, help="Show what one round would do and change nothing.")
@click.option(
    "--task", type=click.Choice(_TASKS),
    help="With --once or --dry-run: run this task alone, now. `retain` deletes expired segments "
    "and does not announce the first deletion of a topic a round ahead. `compact` compacts topics "
    "however few of their bytes are dirty.",
)  # fmt: skip
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME",
    help="With --task compact: compact this topic alone. Repeatable.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def serve(
    path: str,
    options: Sequence[str],
    remote: str | None,
    storage_options: str,
    keyring: str | None,
    plain: bool,
    take_over: bool,
    metrics_port: int | None,
    metrics_address: str,
    address: str | None,
    pages: PagesOptions,
    kafka: str | None,
    kafka_options: Sequence[str],
    read_only: bool,
    once: bool,
    dry_run: bool,
    task: str | None,
    topics: Sequence[str],
    as_json: bool,
) -> int:
    """Roll, delete, compact and tier segments of the log at PATH until SIGTERM or SIGINT.

    Several services may run on a log. One of them works, and the others stand by. --kafka also
    serves Kafka's clients, and --ui also shows the log in a browser.
    """
    once = once or dry_run
    _check_task(task, topics, once=once)
    known = key_values(options, "--option")
    given = parse_storage_options(storage_options)
    access = _store_access(known, given, keyring) if kafka is not None else StoreAccess()
    serving = KafkaServing.from_options(
        path, access, kafka, kafka_options, read_only=read_only, alone=address is None
    )
    shown = _pages(path, address, pages, given, keyring)
    if (serving is not None or shown is not None) and once:
        raise click.UsageError(
            "--kafka and --ui run until they are stopped: leave out --once, --dry-run"
        )
    if read_only:
        return _serve_only(path, serving, shown, as_json=as_json)
    check_directories(path)
    if task is not None:
        check_log(path, StoreAccess(given), archives=False)
    check_dry_run(path, dry_run=dry_run)
    service = Service(
        path,
        remote=remote,
        storage_options=given,
        keyring=None if keyring is None else Keyring.load(keyring),
        plain=plain,
        take_over=take_over,
        options=known,
        metrics_port=metrics_port,
        metrics_address=metrics_address,
    )
    if once:
        return _run_once(service, task, topics, dry_run=dry_run, as_json=as_json)
    service.on_round = partial(_print_round, path, as_json=as_json)
    with (
        stop_signal() as stop,
        service,
        _showing(shown) as url,
        _serving_kafka(serving) as server,
    ):
        _wait(path, stop, server, as_json=as_json, metrics=service.metrics_url, ui=url)
    print_event("stopped", path, as_json=as_json)
    return EXIT_OK


def _print_round(path: str, report: Report, *, as_json: bool) -> None:
    """Print a line about a round that copied or deleted something."""
    moved = report.moved
    if not moved:
        return
    if as_json:
        counts = {what: {"count": n, "bytes": size} for what, (n, size) in moved.items()}
        click.echo(json.dumps({"event": "round", "path": path, "done": counts}))
    else:
        done = ", ".join(f"{what}: {n} ({size_text(size)})" for what, (n, size) in moved.items())
        click.echo(f"{path}: {done}", err=True)


def _store_access(
    options: Mapping[str, str], storage_options: dict[str, Any], keyring: str | None
) -> StoreAccess:
    """Return the options with which the endpoint opens the log and reads remote segments."""
    _, log_options = ServiceOptions.parse(options)
    if keyring is not None:
        log_options |= {"remote.keyring": keyring}
    return StoreAccess(storage_options, log_options)


def _check_task(task: str | None, topics: Sequence[str], *, once: bool) -> None:
    if task is not None and not once:
        raise click.UsageError("--task runs a task once: give --once or --dry-run as well")
    if topics and task != "compact":
        raise click.UsageError("--topic selects topics to compact: give --task compact as well")


def _run_once(
    service: Service, task: str | None, topics: Sequence[str], *, dry_run: bool, as_json: bool
) -> int:
    try:
        if task == "retain":
            report = service.retain(dry_run=dry_run)
        elif task == "compact":
            report = service.compact(topics or None, dry_run=dry_run)
        else:
            report = service.run_once(dry_run=dry_run)
    finally:
        service.close()
    if as_json:
        print_json(report.to_dict())
    else:
        click.echo(str(report))
    return EXIT_FAILED if report.errors or report.standing_by else EXIT_OK


@contextlib.contextmanager
def _serving_kafka(serving: KafkaServing | None) -> Iterator[KafkaServer | None]:
    """Serve Kafka clients if requested."""
    if serving is None:
        yield None
        return
    with KafkaServer(serving) as server:
        yield server


def _serve_only(
    path: str, serving: KafkaServing | None, shown: Pages | None, *, as_json: bool
) -> int:
    """Serve Kafka clients and pages, without the service."""
    with to_read(path, StoreAccess() if serving is None else serving.access, offline=True):
        pass  # raises if there is no log
    with stop_signal() as stop, _showing(shown) as url, _serving_kafka(serving) as server:
        _wait(path, stop, server, as_json=as_json, ui=url)
    print_event("stopped", path, as_json=as_json)
    return EXIT_OK


def _wait(
    path: str, stop: Event, server: KafkaServer | None, *, as_json: bool, **urls: str | None
) -> None:
    """Print the addresses, and wait for the stop signal."""
    if server is not None:
        urls["kafka"] = server.bootstrap_servers
    print_event("serving", path, as_json=as_json, **{n: at for n, at in urls.items() if at})
    while not stop.wait(_LOOK_S):
        if server is not None:
            server.reopen_if_replaced()


def _pages(
    path: str,
    address: str | None,
    options: PagesOptions,
    storage_options: Mapping[str, Any],
    keyring: str | None,
) -> Pages | None:
    """Return the pages to serve, None without --ui."""
    if address is None:
        if options != NO_PAGES:
            raise click.UsageError("the options --ui-... need --ui: give it")
        return None
    given: dict[str, object] = {} if keyring is None else {"remote.keyring": keyring}
    return Pages(path, address, options, storage_options, given)


@contextlib.contextmanager
def _showing(shown: Pages | None) -> Iterator[str | None]:
    """Serve the pages if requested; yields their URL."""
    if shown is None:
        yield None
        return
    with shown.served() as url:
        yield url
