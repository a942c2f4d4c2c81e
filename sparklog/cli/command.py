"""Base classes of commands: error messages, help pages, lazy imports, and stop signals."""

import contextlib
import difflib
import importlib
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from sparklog.cli.arguments import ARGUMENTS
from sparklog.cli.examples import examples
from sparklog.cli.exit_codes import EXIT_UNREAD
from sparklog.errors import InvalidRequestError, SparklogError

_MOVE: Final = "use `sparklog log-dirs move`, which moves one partition and ends when it has moved"
DROPPED: Final[Mapping[str, str]] = {
    "alerts": "use `sparklog metrics --alert-rules`",
    "checkpoint prune": "set lifecycle rules for the points and files of the archive, as "
    "docs/replay.md shows",
    "compact": "use `sparklog serve PATH --once --task compact`",
    "dashboard": "use `sparklog metrics --dashboard`",
    "leader-election": "use `sparklog verify PATH --give-up`",
    "log-dirs balance": _MOVE,
    "log-dirs cancel": _MOVE,
    "log-dirs moves": _MOVE,
    "report": "use `sparklog ui PATH --export FILE`",
    "retain": "use `sparklog serve PATH --once --task retain`",
}
"""Removed commands of earlier versions, with their replacement."""
_WHOLE: Final = 500  # longer than any sentence
# difflib ratio: accepts one or two wrong letters, but not only the common prefix "kafka-"
_ALIKE: Final = 0.7
_TOLD: Final = 4000  # maximum characters of an error message
_LOGGER = logging.getLogger(__name__)


class Command(click.Command):
    """A command that reports errors in click's style: usage, "Error: ...", exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        Raises:
            click.UsageError: The command raised InvalidRequestError. The exit code is 2.
            click.ClickException: The command raised another SparklogError. The exit code is 1.
        """
        try:
            return super().invoke(ctx)
        except InvalidRequestError as error:
            raise click.UsageError(self.spelled(one_line(error)), ctx) from error
        except SparklogError as error:
            raise click.ClickException(self.spelled(one_line(error))) from error

    def spelled(self, message: str) -> str:
        """Return an error message with the command's options in place of Python arguments.

        The engine's messages name the arguments of Python functions, for example leave_remote. The
        user typed, and has to type, --leave-remote.
        """
        for param in self.params:
            name, option = param.name or "", max(param.opts, key=len)
            if "_" in name and option.startswith("--"):
                # The same letters within a path, a dotted key or another option are not an
                # argument's name.
                message = re.sub(rf"(?<![\w./-]){name}(?![\w/-])", option, message)
        return message

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, which click does not describe, and the options."""
        described = ARGUMENTS.get(_words(ctx), ())
        if described:
            given = [param for param in self.params if isinstance(param, click.Argument)]
            names = [param.human_readable_name for param in given]
            with formatter.section("Arguments"):
                formatter.write_dl(list(zip(names, described, strict=True)))
        super().format_options(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples of the command."""
        shown = examples(_words(ctx))
        if shown:
            with formatter.section("Examples" if len(shown) > 1 else "Example"):
                for line in shown:
                    # Not write_text, which wraps: a wrapped command line can't be copied.
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)


def _words(ctx: click.Context) -> str:
    """Return the command's full name without the name of the program, such as "topics create"."""
    return ctx.command_path.partition(" ")[2]


def refuse_dropped(ctx: click.Context, name: str) -> None:
    """Raise click.UsageError with the replacement if `name` is a removed command of `ctx`."""
    plain = name.removeprefix("kafka-").removesuffix(".sh")
    instead = DROPPED.get(f"{ctx.command_path} {plain}".partition(" ")[2])
    if instead is not None:
        ctx.fail(f"{name} was removed: {instead}")


class Group(click.Group):
    """A group of commands, such as `topics`, whose help shows a complete sentence per command."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments begin with, and the remaining arguments.

        Raises:
            click.UsageError: There is no such command. The message suggests a command with a
                similar name.
        """
        name = args[0]
        refuse_dropped(ctx, name)
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1, cutoff=_ALIKE)
            # click sets resilient_parsing for shell completion, where an incomplete name is no
            # error.
            if near and not ctx.resilient_parsing:
                ctx.fail(f"No such command {name!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

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
    """A group of commands that are imported when they are used.

    Importing Arrow and the commands takes a second, which help, the version, completion and
    mistyped names should not need.
    """

    def __init__(
        self,
        *,
        package: str,
        headings: Mapping[str, Mapping[str, tuple[str, str]]],
        other_names: Callable[[str], Sequence[str] | None] = lambda _: None,
        **given: Any,
    ) -> None:
        """Register the commands without importing their modules.

        Args:
            package: The package with the modules of the commands.
            headings: {heading: {name: ("module:attribute", the line in the list of commands)}}.
            other_names: Translates a name outside the list, such as the name of a Kafka tool. The
                result is the command and the arguments that precede the given arguments, or None
                for an unknown name. May raise click.UsageError.
        """
        super().__init__(**given)
        self.headings = headings
        self._lazy = {name: at for below in headings.values() for name, at in below.items()}
        self._package, self._other_names = package, other_names

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments begin with, and the remaining arguments."""
        if args and args[0] not in self._lazy:
            args = [*(self._other_names(args[0]) or args[:1]), *args[1:]]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; exit with EXIT_UNREAD if the process that reads the output has ended."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would exit with 1, which means damage
            drop_output()
            ctx.exit(EXIT_UNREAD)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, sorted."""
        return sorted({*self._lazy, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, if the name is known."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        found = getattr(importlib.import_module(f"{self._package}.{module}"), attribute)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands below each heading, all aligned."""
        width = max(map(len, self._lazy))
        for heading, below in self.headings.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), at[1]) for name, at in below.items()])

    def brief(self, ctx: click.Context, name: str) -> str:
        """Return a command's line in the list, without importing the command."""
        return self._lazy[name][1] if name in self._lazy else super().brief(ctx, name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name, then options."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self.brief(ctx, name)) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


def drop_output() -> None:
    """Redirect further output to /dev/null, so that the interpreter reports no error at exit."""
    # stdout may be an object without a descriptor, as in click's test runner.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def one_line(error: Exception) -> str:
    """Return an error's text without line breaks; a very long text is shortened."""
    text = " ".join(str(error).split())
    return text if len(text) <= _TOLD else f"{text[: _TOLD // 2]} … {text[-_TOLD // 2 :]}"


@contextlib.contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and SIGINT set. A second signal ends the process at once."""
    stop = threading.Event()
    # Restored at the end, because tests and embedding programs run several commands in a process.
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def handle(number: int, _: FrameType | None) -> None:
        _LOGGER.info("%s: stopping", signal.Signals(number).name)
        stop.set()
        # From now on the default action: a clean stop can wait for a store for minutes, and a user
        # who presses Ctrl-C again does not want to wait.
        for known, handler in before.items():
            signal.signal(known, handler)

    for number in before:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
