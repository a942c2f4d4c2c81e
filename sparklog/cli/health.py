"""Output of a log's health for people and monitoring systems."""

from typing import Final

import click
from rich.text import Text

from sparklog.cli.output import console
from sparklog.cli.terminal import one_row
from sparklog.service.health import CHECKS, Health, Level

_STYLES: Final = {Level.GREEN: "green", Level.AMBER: "yellow", Level.RED: "bold red"}
_WIDTH: Final = max(map(len, CHECKS))
_NAGIOS: Final = {Level.GREEN: "OK", Level.AMBER: "WARNING", Level.RED: "CRITICAL"}


def print_health(found: Health) -> None:
    """Print the verdict, a line per check, and the recommended commands."""
    out = console()
    head = (f"{found.level}: ", _STYLES[found.level])
    out.print(Text.assemble(head, one_row(found.verdict)), soft_wrap=True)
    for check in found.checks:
        level = (f"{check.level:<5} ", _STYLES[check.level])
        out.print(Text.assemble(f"  {check.name:<{_WIDTH}} ", level, one_row(check.what)),
                  soft_wrap=True)  # fmt: skip
        if check.command is not None:
            out.print(Text(f"{'':{_WIDTH + 9}}$ {one_row(check.command)}"), soft_wrap=True)


def print_nagios(found: Health) -> None:
    """Print a line in the format of Nagios plugins: a state, a text, and a value per check.

    Source: Nagios Plugins Development Guidelines, "Plugin Output", "Plugin Return Codes".
    """
    words = one_row(found.verdict).replace("|", "/")
    figures = " ".join(f"{check.name}={check.level.rank};0;1;0;2" for check in found.checks)
    click.echo(f"SPARKLOG {_NAGIOS[found.level]} - {words} | {figures}")
