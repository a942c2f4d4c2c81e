"""The reference pages of docs/, made from the code; `python -m tests.reference` writes them."""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from sparklog.cli.app import app
from sparklog.config import KEYS, LOG_KEYS
from sparklog.configdef import markdown
from sparklog.service.options import SERVICE_KEYS
from sparklog.sink import options as sink
from sparklog.source import options as source
from sparklog.source.state_options import STATE_OPTIONS
from sparklog.tiered.options import REMOTE_KEYS

DOCS = Path(__file__).parents[1] / "docs"
_MADE = "<!-- Made from the code: python -m tests.reference; tests/test_docs.py checks it. -->\n"


def options_page() -> str:
    """All options and configs, a table for each place that takes them."""
    parts = [
        ("The source: `spark.read` and `spark.readStream`", markdown(source.OPTIONS.values())),
        ("Refused by the source, and every other `kafka.*`", _refused(source.REFUSED)),
        ("The source on a checkpoint's state", markdown(STATE_OPTIONS.values())),
        ("The sink: `SegmentSink`, `df.write`, `df.writeStream`", markdown(sink.OPTIONS.values())),
        ("Refused by the sink, and every other `kafka.*`", _refused(sink.REFUSED)),
        ("Topic configs", markdown(KEYS.values())),
        ("The log: `sparklog.open(..., options={...})`", markdown(LOG_KEYS.values())),
        ("Reading remote segments: options of `sparklog.open`", markdown(REMOTE_KEYS.values())),
        ("The service: `Service(..., options={...})`", markdown(SERVICE_KEYS.values())),
    ]
    intro = (
        "# Options and configs\n\n"
        "Spark's options come in any case. What Spark's Kafka connector knows and has no meaning "
        "here is refused by name, with what to do instead. *also* lists Kafka's broker-wide names "
        "for the same thing, which are taken as well.\n"
    )
    return _MADE + intro + "".join(f"\n## {title}\n\n{table}" for title, table in parts)


def _refused(entries: dict[str, str]) -> str:
    rows = "".join(f"| `{name}` | {why} |\n" for name, why in entries.items())
    return f"| refused | because |\n|--|--|\n{rows}"


def cli_page() -> str:
    """Every command of `sparklog` with its arguments and options."""
    intro = (
        "# The command line\n\n"
        "`pip install 'sparklog[cli]'`. PATH is a log dir, or several joined by commas. "
        f"{app.epilog}\n"
    )
    return _MADE + intro + "".join(_command(words, command) for words, command in _commands(app))


def _commands(group: click.Group, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _commands(command, *words, name)
        else:
            yield (*words, name), command


def _command(words: tuple[str, ...], command: click.Command) -> str:
    context = click.Context(command, info_name=" ".join(("sparklog", *words)))
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    rows = "".join(
        f"| `{_escaped(names)}` | {_escaped(text)} |\n"
        for names, text in (p.get_help_record(context) or ("", "") for p in command.params)
        if text  # the usage shows the arguments
    )
    # Paragraphs of a docstring are wrapped for the source; a \b block keeps its lines.
    paragraphs = re.split(r"\n\s*\n", (command.help or "").strip())
    said = "\n\n".join(
        f"```\n{p[1:].strip()}\n```" if p.startswith("\b") else " ".join(p.split())
        for p in paragraphs
    )
    table = f"\n| option | |\n|--|--|\n{rows}" if rows else ""
    return f"\n## {' '.join(words)}\n\n```\n{usage}\n```\n\n{said}\n{table}"


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES = {"options.md": options_page, "cli.md": cli_page}

if __name__ == "__main__":
    DOCS.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
