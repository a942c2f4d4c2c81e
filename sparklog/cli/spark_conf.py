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
    help="Print the settings as arguments of spark-submit (--conf KEY=VALUE ...).",
)  # fmt: skip
@click.option(
    "--daemon",
    is_flag=True,
    help="Add a setting for Python workers that start faster. They require sparklog to be "
    "installed in the Python of all executors; --py-files does not suffice.",
)
@click.option(
    "--jar",
    "jar_file",
    metavar="FILE",
    help="Write the jar to this file or into this directory, and refer to it in the settings. Copy "
    "it to hosts that cannot compile it, and name it there in SPARKLOG_JAR or spark.jars.",
)
@click.option(
    "--no-checkpoints",
    is_flag=True,
    help="Omit the settings of log-backed checkpoints, so that Spark stores checkpoints in files.",
)
@click.option(
    "--json", "as_json", is_flag=True,
    help="Print one JSON document instead of properties.",
)  # fmt: skip
def spark_conf(
    as_arguments: bool, daemon: bool, jar_file: str | None, no_checkpoints: bool, as_json: bool
) -> int:
    """Print the Spark settings with which the JVM reads and writes logs and checkpoints.

    The output is in the format of spark-defaults.conf. A session that is created with the settings
    of sparklog.spark_conf() in Python does not need the command. The settings refer to sparklog's
    jar, which the first call compiles for the installed Spark, unless the environment variable
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
