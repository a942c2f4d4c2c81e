"""`sparklog dashboard`: a dashboard for Grafana, as it is shipped."""

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.output import print_json
from sparklog.service.metrics.dashboard import dashboard as shipped


@click.command(cls=Command)
def dashboard() -> int:
    """Print a dashboard for Grafana 10 and later, as JSON.

    sparklog dashboard > sparklog.json, then import that file (Dashboards, New, Import), or put it
    where Grafana's provisioning looks for dashboards. It asks the chosen Prometheus for what the
    endpoint of `sparklog serve --metrics-port` tells, and has each log by itself.
    """
    print_json(shipped())
    return EXIT_OK
