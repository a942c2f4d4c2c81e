"""The form of every help text: commands, arguments, options, examples."""

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from sparklog.cli.app import app
from sparklog.cli.arguments import ARGUMENTS
from tests.reference import commands

COMMANDS = {" ".join(words): command for words, command in commands(app)}

# A verb is added here if it is an imperative that a user understands without the manual.
VERBS = frozenset(
    re.findall(
        r"\w+",
        """
        Accept Add Allow Alter Append Archive Ask Back Begin Bring Change Check Commit
        Compact Compare Compress Connect Convert Copy Count Create Decode Decrypt Delete
        Describe Do Download Encrypt End Erase Exit Export Fail Find Fork Give Go Hash Import
        Increase Inspect Keep Leave Link List Log Make Manage Move Name Omit Pass Prepare
        Print Read Rebuild Remove Repeat Report Reset Restore Run Select Serve Set Show
        Stop Transfer Upload Use Verify Wait Write
        """,
    )
)
VAGUE = re.compile(
    r"\b(somehow|some other|etc|and so on|stuff|things?|whatever|whoever|nobody|somebody|"
    r"anew|(?<!show )what|who is|those who)\b",
    re.IGNORECASE,
)


def options() -> Iterator[tuple[str, click.Option]]:
    for words, command in COMMANDS.items():
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden:
                yield f"{words} {param.opts[0]}", param


OPTIONS = dict(options())


def text_of(text: str | None) -> str:
    return " ".join((text or "").split())


def check_sentences(text: str) -> None:
    """Assert the form: an imperative first, complete sentences, no vague word."""
    assert re.split("[ ,]", text)[0] in VERBS, text
    assert text.endswith("."), text
    assert not VAGUE.search(text), text
    for sentence in re.split(r"(?<=[a-z`)])\. ", text):
        assert sentence[0].isupper() or sentence[0] in '`"(0123456789' or sentence[:2] == "--", text


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_says_what_to_expect(name: str) -> None:
    option = OPTIONS[name]
    check_sentences(text_of(option.help))
    if option.multiple and option.callback is None:
        assert "Repeatable" in text_of(option.help)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_with_a_default_shows_it(name: str) -> None:
    option = OPTIONS[name]
    record = option.get_help_record(click.Context(COMMANDS[name.rpartition(" ")[0]]))
    assert record is not None
    if isinstance(option.default, str | int | float) and not option.is_flag:
        assert "[default: " in record[1] or "default is" in record[1]
    assert "INTEGER RANGE" not in record[0]  # a metavar says what the number counts


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_says_what_it_does(words: str) -> None:
    command = COMMANDS[words]
    paragraphs = [text_of(p) for p in re.split(r"\n\s*\n", (command.help or "").strip())]
    check_sentences(paragraphs[0])
    for text in paragraphs:
        assert text.endswith(".") and not VAGUE.search(text), text


@pytest.mark.parametrize("words", COMMANDS)
def test_help_describes_each_argument(words: str) -> None:
    given = [p for p in COMMANDS[words].params if isinstance(p, click.Argument)]
    assert len(ARGUMENTS[words]) == len(given)
    told = CliRunner().invoke(app, [*words.split(), "--help"], prog_name="sparklog").output
    for param, text in zip(given, ARGUMENTS[words], strict=True):
        assert text.endswith(".") and not VAGUE.search(text)
        assert re.search(rf"\nArguments:\n(  .*\n)*  {param.human_readable_name}  ", told)


def test_no_other_command_is_described() -> None:
    assert ARGUMENTS.keys() == COMMANDS.keys()


def test_a_list_of_commands_shows_sentences() -> None:
    for below in app.headings.values():
        for _, text in below.values():
            check_sentences(text)
    for name in app.list_commands(click.Context(app)):
        command = app.get_command(click.Context(app), name)
        assert command is not None
        check_sentences(text_of((command.help or "").split("\n\n")[0]))
