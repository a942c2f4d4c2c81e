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
    help="Set an option of the service or of the log under its Kafka name, such as "
    "log.retention.hours=24 (docs/options.md). Repeatable.",
)  # fmt: skip
@click.option(
    "--remote", metavar="URL",
    help="Copy closed segments of topics with remote.storage.enable=true to this URL, such as "
    "s3://bucket/prefix. The log stores the URL, so pass it only once.",
)  # fmt: skip
@storage_option
@click.option(
    "--keyring", metavar="FILE",
    help="Encrypt copies in remote storage with the keys in this file (docs/encryption.md). A log "
    "with encrypted copies requires the option at each start. The default is no encryption; the "
    "environment variable SPARKLOG_KEYRING is not read.",
)  # fmt: skip
@click.option(
    "--plain", is_flag=True,
    help="Stop the encryption of new copies. Pass the option once, without --keyring.",
)  # fmt: skip
@click.option(
    "--take-over", is_flag=True,
    help="Make this log the owner of the copies at --remote. Use it after a log dir was restored "
    "or copied, and stop the service of the other log first.",
)  # fmt: skip
@click.option(
    "--metrics-port", metavar="N", type=click.IntRange(0, 65535),
    help="Serve /metrics for Prometheus, and /healthz, on this port. Port 0 selects a free port, "
    "which is printed. The default is to serve no metrics.",
)  # fmt: skip
@click.option(
    "--metrics-address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
    help="Serve the metrics at this address. 0.0.0.0 listens on all networks of the host.",
)  # fmt: skip
@click.option(
    "--ui", "address", metavar="[HOST:]PORT",
    help="Serve web pages that show the log and its records (docs/ui.md). The default host is "
    "127.0.0.1. Port 0 selects a free port, which is printed.",
)  # fmt: skip
@pages_options
@click.option(
    "--kafka", "kafka", metavar="[HOST:]PORT",
    help="Serve Kafka clients at this address (docs/kafka.md). The default host is 127.0.0.1. Port "
    "0 selects a free port, which is printed.",
)  # fmt: skip
@click.option(
    "--kafka-option", "kafka_options", multiple=True, metavar="KEY=VALUE",
    help="Set an option of the Kafka endpoint under its Kafka name, such as "
    "sasl.users.location=FILE (docs/options.md). Requires --kafka. Repeatable.",
)  # fmt: skip
@click.option(
    "--read-only", is_flag=True,
    help="Serve clients read-only, and do no background work. Required for an archive or a "
    "broker's directory. Requires --kafka or --ui.",
)  # fmt: skip
@click.option(
    "--once", is_flag=True,
    help="Do one round of all work, and stop. Excludes --kafka and --ui.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True,
    help="Show what one round would do, and change nothing. Excludes --kafka and --ui.",
)  # fmt: skip
@click.option(
    "--task", type=click.Choice(_TASKS),
    help="Run only this task. Requires --once or --dry-run. `retain` deletes expired segments at "
    "once; a service announces the first deletion in a topic, and deletes in its next round. "
    "`compact` compacts topics even if their dirty ratio is below min.cleanable.dirty.ratio. The "
    "default is all tasks.",
)  # fmt: skip
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME",
    help="Compact only this topic. Requires --task compact. The default is all compacted topics. "
    "Repeatable.",
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
    """Run the background service of a log until Ctrl-C or SIGTERM.

    The service does the work that brokers do in Kafka: it rolls segments, applies retention,
    compacts topics and copies segments to remote storage, and in a bucket it merges small objects.
    If several services of a log run, one works and the others stand by. Ctrl-C and SIGTERM end the
    service in an orderly way, with exit code 0. With --once the exit code is 1 if a task failed or
    another service is working.
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
        # The signal handler comes first: a signal while the log is opened must end in an orderly
        # stop.
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
        raise click.UsageError("--task runs a task once: add --once or --dry-run")
    if topics and task != "compact":
        raise click.UsageError("--topic selects topics to compact: add --task compact")


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
    """Run the Kafka endpoint in this block; do nothing without --kafka."""
    if serving is None:
        yield None
        return
    with KafkaServer(serving) as server:
        yield server


def _serve_only(
    path: str, serving: KafkaServing | None, shown: Pages | None, *, as_json: bool
) -> int:
    """Serve Kafka clients and pages without the background service (--read-only)."""
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
    """Return the pages to serve, or None without --ui."""
    if address is None:
        if options != NO_PAGES:
            raise click.UsageError("the options --ui-... require --ui")
        return None
    given: dict[str, object] = {} if keyring is None else {"remote.keyring": keyring}
    return Pages(path, address, options, storage_options, given)


@contextlib.contextmanager
def _showing(shown: Pages | None) -> Iterator[str | None]:
    """Serve the pages in this block and yield their URL; do nothing without --ui."""
    if shown is None:
        yield None
        return
    with shown.served() as url:
        yield url
