"""What all commands have in common: how a refused call looks, and that modules come late."""

import contextlib
import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from sparklog.cli.exit_codes import EXIT_UNREAD
from sparklog.errors import InvalidRequestError

_WHOLE: Final = 500  # no sentence is so long


class Command(click.Command):
    """A command whose refused calls look as click's own: its usage, "Error: ...", exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it. Raises: click.UsageError for an InvalidRequestError."""
        try:
            return super().invoke(ctx)
        except InvalidRequestError as error:
            raise click.UsageError(one_line(error), ctx) from error


class Group(click.Group):
    """Commands below a name, as `topics`; its list says of each a whole sentence."""

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        rows = [(name, self.brief(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def brief(self, ctx: click.Context, name: str) -> str:
        """Return the first sentence of a command's help."""
        command = self.get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(_WHOLE)


class LazyGroup(Group):
    """A group whose commands are imported when they are chosen.

    Arrow and what else the commands are made of takes a second to import; who asks for help, the
    version or the completion of a name, or mistypes one, doesn't wait for it.
    """

    def __init__(self, *, lazy: Mapping[str, tuple[str, str]], **given: Any) -> None:
        """`lazy`: {name: ("module:attribute", what the list of commands says)}."""
        super().__init__(**given)
        self._lazy = lazy

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; where nobody reads its output any more, leave with EXIT_UNREAD."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would leave with 1, which says that something is damaged
            drop_output()
            ctx.exit(EXIT_UNREAD)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, sorted."""
        return sorted({*self._lazy, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; None if there is none of the name."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        found = getattr(importlib.import_module(module), attribute)
        assert isinstance(found, click.Command)
        return found

    def brief(self, ctx: click.Context, name: str) -> str:
        """Return what is known of a command without it."""
        return self._lazy[name][1] if name in self._lazy else super().brief(ctx, name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name, then options."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self.brief(ctx, name)) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


def drop_output() -> None:
    """Let what is still to be written go nowhere, for the interpreter would complain at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def one_line(error: Exception) -> str:
    """Return an error's text without line breaks, for logs and terminals."""
    return " ".join(str(error).split())
