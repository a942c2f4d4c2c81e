"""`sparklog spark-conf`: prints Spark settings for logs, and compiles the jar."""

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.output import print_json
from sparklog.jvm.jar import write_jar
from sparklog.session.setup import JARS_KEY
from sparklog.session.setup import spark_conf as settings


@click.command("spark-conf", cls=Command)
@click.option(
    "--args", "as_arguments", is_flag=True,
    help="Print the settings as arguments of spark-submit.",
)  # fmt: skip
@click.option(
    "--daemon",
    is_flag=True,
    help="Use Python workers that start faster. This requires sparklog to be installed for the "
    "Python of all executors; --py-files does not suffice.",
)
@click.option(
    "--jar",
    "jar_file",
    metavar="FILE",
    help="Write the jar to FILE, a file or a directory, and name it in the settings. Use this for "
    "hosts without a compiler or a cache, where SPARKLOG_JAR or spark.jars can name it, too.",
)
@click.option(
    "--no-checkpoints",
    is_flag=True,
    help="Leave checkpoints to Spark's own manager. The jar still reads and writes logs.",
)
@click.option(
    "--json", "as_json", is_flag=True,
    help="Print one JSON document instead of properties.",
)  # fmt: skip
def spark_conf(
    as_arguments: bool, daemon: bool, jar_file: str | None, no_checkpoints: bool, as_json: bool
) -> int:
    """Print the Spark settings for logs in the JVM and for log-backed checkpoints.

    The settings are lines for spark-defaults.conf. With --args, use them as spark-submit $(sparklog
    spark-conf --args) APP. The first call compiles the jar for the installed Spark, unless
    SPARKLOG_JAR names a jar that --jar wrote.
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
