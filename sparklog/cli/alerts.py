"""`sparklog alerts`: rules for Prometheus, as they are shipped."""

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.service.metrics import alert_rules


@click.command(cls=Command)
def alerts() -> int:
    """Print alert rules for Prometheus.

    sparklog alerts > sparklog.yml, and name that file under rule_files in prometheus.yml. They
    are about the endpoint of `sparklog serve --metrics-port`, scraped by a job named sparklog.
    `sparklog dashboard` prints what Grafana shows beside them.
    """
    click.echo(alert_rules(), nl=False)
    return EXIT_OK
