"""`sparklog spark-conf`: the settings of a Spark application whose checkpoints are logs."""

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.output import print_json
from sparklog.state.session import spark_conf as settings


@click.command("spark-conf", cls=Command)
@click.option("--args", "as_arguments", is_flag=True, help="As arguments of spark-submit.")
@click.option(
    "--daemon",
    is_flag=True,
    help="Quicker Python workers: only where sparklog is installed for the Python of all "
    "executors, not with --py-files, which would leave them without workers.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of properties.")
def spark_conf(as_arguments: bool, daemon: bool, as_json: bool) -> int:
    """Print what a Spark application needs to keep its checkpoints as logs.

    As lines for spark-defaults.conf; with --args: spark-submit $(sparklog spark-conf --args) APP.
    Compiles the checkpoint manager at first use, for the pyspark that is installed here.
    """
    conf = settings(daemon=daemon)
    if as_json:
        print_json(conf)
    elif as_arguments:
        click.echo(" ".join(f"--conf {key}={value}" for key, value in conf.items()))
    else:
        for key, value in conf.items():
            click.echo(f"{key} {value}")
    return EXIT_OK
