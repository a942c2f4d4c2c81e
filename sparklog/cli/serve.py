"""`sparklog serve`: the service without Spark."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.kafka_server import KafkaServer, KafkaServing
from sparklog.cli.open_log import check_directories
from sparklog.cli.output import print_json
from sparklog.cli.parsing import key_values
from sparklog.cli.stopping import stop_signal
from sparklog.cli.storage import Reach, parse_storage_options, storage_option
from sparklog.service import Service
from sparklog.service.options import ServiceOptions
from sparklog.tiered.keyring import Keyring
from sparklog.tools.report.build import make_report
from sparklog.tools.report.live import LiveReport, parse_address
from sparklog.tools.report.model import LogReport
from sparklog.tools.report.segments import Memory

_LOOK_S: Final = 1.0


@click.command(cls=Command)
@click.argument("path")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE",
    help="An option of the service under Kafka's name; may be given several times.",
)  # fmt: skip
@click.option(
    "--remote", metavar="URL",
    help="Where closed segments of tiered topics go: s3://bucket/prefix. Kept with the log.",
)  # fmt: skip
@storage_option
@click.option(
    "--keyring", metavar="FILE",
    help="The keys by which copies are encrypted (docs/encryption.md). Needed from then on.",
)  # fmt: skip
@click.option(
    "--plain", is_flag=True,
    help="Copies are not encrypted from now on, though they were. Needed once.",
)  # fmt: skip
@click.option(
    "--take-over", is_flag=True,
    help="The copies become this log's, whose log dir was restored or copied. Stop the other.",
)  # fmt: skip
@click.option(
    "--metrics-port", metavar="N", type=click.IntRange(0, 65535),
    help="Serve /metrics for Prometheus, and /healthz, on this port; 0 takes a free one.",
)  # fmt: skip
@click.option(
    "--metrics-address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
    help="Where --metrics-port listens: 0.0.0.0 is every network that this host is in.",
)  # fmt: skip
@click.option(
    "--ui", "address", metavar="[HOST:]PORT",
    help="Show the log's report live in a browser; on 127.0.0.1 by default, port 0 is a free one.",
)  # fmt: skip
@click.option(
    "--kafka", "kafka", metavar="[HOST:]PORT",
    help="Serve Kafka's clients (docs/kafka.md); on 127.0.0.1 by default, port 0 is a free one.",
)  # fmt: skip
@click.option(
    "--kafka-option", "kafka_options", multiple=True, metavar="KEY=VALUE",
    help="An option of --kafka under Kafka's name; may be given several times.",
)  # fmt: skip
@click.option(
    "--read-only", is_flag=True,
    help="Nothing but --kafka, and clients only read: of an archive, or a broker's directory.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Do one whole round and stop.")
@click.option("--dry-run", is_flag=True, help="Show what one round would do; changes nothing.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
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
    kafka: str | None,
    kafka_options: Sequence[str],
    read_only: bool,
    once: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Keep the log at PATH in shape: roll, expire, compact, tier; until SIGTERM or SIGINT.

    Several may run; one at a time does the work, the others stand by. With --kafka, Kafka's
    clients are served, too.
    """
    known = key_values(options, "--option")
    given = parse_storage_options(storage_options)
    reach = _reach(known, given, keyring) if kafka is not None else Reach()
    serving = KafkaServing.of(path, reach, kafka, kafka_options, read_only=read_only)
    if serving is not None and (once or dry_run):
        raise click.UsageError("--kafka is served until it is stopped: leave out --once, --dry-run")
    if serving is not None and read_only:
        return _serve_only(serving, as_json=as_json)
    check_directories(path)
    live = None if address is None else parse_address(address)
    if live is not None and (once or dry_run):
        raise click.UsageError("--ui is for a service that stays: leave out --once and --dry-run")
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
    if once or dry_run:
        return _run_once(service, dry_run=dry_run, as_json=as_json)
    with (
        stop_signal() as stop,
        service,
        _showing(path, live, given, keyring) as url,
        _serving_kafka(serving) as server,
    ):
        urls = {"metrics": service.metrics_url, "ui": url}
        if server is not None:
            urls["kafka"] = server.bootstrap_servers
        _tell("serving", path, as_json=as_json, **{name: at for name, at in urls.items() if at})
        while not stop.wait(_LOOK_S):
            if server is not None:
                server.look()
    _tell("stopped", path, as_json=as_json)
    return EXIT_OK


def _reach(
    options: Mapping[str, str], storage_options: dict[str, Any], keyring: str | None
) -> Reach:
    """Return how the endpoint's own handle on the log reads remote segments, and its options."""
    _, log_options = ServiceOptions.parse(options)
    if keyring is not None:
        log_options |= {"remote.keyring": keyring}
    return Reach(storage_options, log_options)


def _run_once(service: Service, *, dry_run: bool, as_json: bool) -> int:
    try:
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
    """Serve Kafka's clients, if it is asked for."""
    if serving is None:
        yield None
        return
    with KafkaServer(serving) as server:
        yield server


def _serve_only(serving: KafkaServing, *, as_json: bool) -> int:
    with stop_signal() as stop, KafkaServer(serving) as server:
        _tell("serving", serving.path, as_json=as_json, kafka=server.bootstrap_servers)
        while not stop.wait(_LOOK_S):
            server.look()
    _tell("stopped", serving.path, as_json=as_json)
    return EXIT_OK


@contextlib.contextmanager
def _showing(
    path: str,
    address: tuple[str, int] | None,
    storage_options: Mapping[str, Any],
    keyring: str | None,
) -> Iterator[str | None]:
    """Show the report live, if it is asked for; gives its URL."""
    if address is None:
        yield None
        return
    memory = Memory()

    def make() -> LogReport:
        return make_report(
            path,
            storage_options=storage_options,
            options=None if keyring is None else {"remote.keyring": keyring},
            memory=memory,
        )

    with LiveReport(make, address) as live:
        yield live.url


def _tell(event: str, path: str, *, as_json: bool, **urls: str) -> None:
    if as_json:
        click.echo(json.dumps({"event": event, "path": path, **urls}))  # a line an event
    else:
        said = "".join(f", {name} at {url}" for name, url in urls.items())
        click.echo(f"{event} {path}{said}", err=True)
