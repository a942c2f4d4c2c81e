"""`sparklog doctor`: checks Spark, prints the settings for logs, writes the jar."""

import click

import sparklog
from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.output import print_json
from sparklog.cli.spark_session import spark_session
from sparklog.jvm.jar import write_jar
from sparklog.session.setup import JARS_KEY
from sparklog.session.setup import spark_conf as settings


@click.command("doctor", cls=Command)
@click.argument("checkpoint", required=False)
@click.option(
    "--spark-conf", "conf_only", is_flag=True,
    help="Print only the settings for a Spark session, in the format of spark-defaults.conf.",
)  # fmt: skip
@click.option(
    "--args", "as_arguments", is_flag=True,
    help="Print the settings as arguments of spark-submit (--conf KEY=VALUE ...).",
)  # fmt: skip
@click.option(
    "--daemon",
    is_flag=True,
    help="Add a setting for Python workers that start faster. They require sparklog "
    " to be installed in the Python of all executors; --py-files does not suffice.",
)
@click.option(
    "--jar",
    "jar_file",
    metavar="FILE",
    help="Write the jar to this file or into this directory, and refer to it in "
    "the settings. Copy it to hosts without sparklog, and name it there in spark.jars.",
)
@click.option(
    "--no-checkpoints",
    is_flag=True,
    help="Omit the settings of log-backed checkpoints, so that Spark stores "
    "checkpoints in files.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")
def doctor(
    checkpoint: str | None,
    conf_only: bool,
    as_arguments: bool,
    daemon: bool,
    jar_file: str | None,
    no_checkpoints: bool,
    as_json: bool,
) -> int:
    """Check whether Spark can use all of sparklog here, and print a remedy for each fault.

    Starts a Spark session with the settings of sparklog.spark_conf(); settings in
    spark-defaults.conf and PYSPARK_SUBMIT_ARGS apply too. To examine a session of your own, call
    sparklog.doctor(spark) in Python. Exit code 1: something is wrong.

    With --spark-conf, the command only prints the settings with which the JVM reads and writes logs
    and checkpoints. They refer to sparklog's jar, which is part of the package, unless SPARKLOG_JAR
    names another one. The options --args, --daemon, --jar and --no-checkpoints need --spark-conf.
    """
    if conf_only:
        return _print_conf(as_arguments, daemon, jar_file, no_checkpoints, as_json)
    if as_arguments or daemon or jar_file is not None or no_checkpoints:
        raise click.UsageError("--args, --daemon, --jar and --no-checkpoints need --spark-conf")
    with spark_session() as spark:
        report = sparklog.doctor(spark, checkpoint)
    if as_json:
        lines = [
            {"subject": line.subject, "found": line.found, "fault": line.fault}
            for line in report.lines
        ]
        print_json({"ok": report.ok, "lines": lines})
    else:
        click.echo(str(report))
    return EXIT_OK if report.ok else EXIT_FAILED


def _print_conf(
    as_arguments: bool, daemon: bool, jar_file: str | None, no_checkpoints: bool, as_json: bool
) -> int:
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
