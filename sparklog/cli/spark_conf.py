"""`sparklog spark-conf`: the settings of a Spark application that uses logs, and its jar."""

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.output import print_json
from sparklog.jvm.jar import write_jar
from sparklog.state.session import JARS_KEY
from sparklog.state.session import spark_conf as settings


@click.command("spark-conf", cls=Command)
@click.option("--args", "as_arguments", is_flag=True, help="As arguments of spark-submit.")
@click.option(
    "--daemon",
    is_flag=True,
    help="Quicker Python workers: only where sparklog is installed for the Python of all "
    "executors, not with --py-files, which would leave them without workers.",
)
@click.option(
    "--jar",
    "jar_file",
    metavar="FILE",
    help="Write the jar to FILE, a file or a directory, and name that one in the settings: for "
    "hosts without a compiler or a cache, where SPARKLOG_JAR or spark.jars names it, too.",
)
@click.option(
    "--no-checkpoints",
    is_flag=True,
    help="Leave checkpoints to Spark's own manager; the jar reads and writes logs all the same.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of properties.")
def spark_conf(
    as_arguments: bool, daemon: bool, jar_file: str | None, no_checkpoints: bool, as_json: bool
) -> int:
    """Print what a Spark application needs to read and write logs at the JVM's speed, and to keep
    its checkpoints as logs.

    As lines for spark-defaults.conf; with --args: spark-submit $(sparklog spark-conf --args) APP.
    Compiles the jar at first use, for the Spark that is installed here, unless SPARKLOG_JAR names
    one that was written by --jar.
    """
    given = {} if jar_file is None else {JARS_KEY: write_jar(jar_file)}
    conf = settings(given, daemon=daemon, checkpoints=not no_checkpoints)
    if as_json:
        print_json(conf)
    elif as_arguments:
        click.echo(" ".join(f"--conf {key}={value}" for key, value in conf.items()))
    else:
        for key, value in conf.items():
            click.echo(f"{key} {value}")
    return EXIT_OK
