"""`sparklog kafka-users`: manages users of a Kafka endpoint, and their rights."""

import sys
from typing import IO

import click

from sparklog.cli.command import Command
from sparklog.cli.exit_codes import EXIT_OK
from sparklog.cli.output import print_json
from sparklog.errors import InvalidRequestError
from sparklog.kafka.credentials import (
    ITERATIONS,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM,
    Mechanism,
    ScramCredential,
)
from sparklog.kafka.users import User, change_users, check_name, parse_rights, read_users


@click.command("kafka-users", cls=Command)
@click.argument("path", metavar="FILE")
@click.option("--add", metavar="NAME", help="Add a user, and ask for the password.")
@click.option(
    "--alter", metavar="NAME",
    help="Change the rights or the password of a user. Requires --rights, --password or "
    "--password-file.",
)  # fmt: skip
@click.option(
    "--delete", metavar="NAME", help="Delete a user, so that the user can no longer connect."
)
@click.option(
    "--rights", metavar="R1,R2",
    help="Set the user's rights, joined by commas: `read` to consume and to use consumer groups, "
    "`write` to produce, `admin` to create, alter and delete topics and to delete records and "
    "groups. Requires --add or --alter. The default with --add is `read`.",
)  # fmt: skip
@click.option("--password", is_flag=True, help="Ask for a new password. Requires --alter.")
@click.option(
    "--password-file", type=click.File("r", encoding="utf-8"), metavar="FILE",
    help="Read the password from the first line of this file instead of asking for it. \"-\" is "
    "standard input.",
)  # fmt: skip
@click.option(
    "--no-password", is_flag=True,
    help="Add a user without a password, who connects with a client certificate. NAME is the "
    "certificate's subject, such as CN=loader,O=x. Requires --add.",
)  # fmt: skip
@click.option(
    "--iterations", type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX), default=ITERATIONS,
    show_default=True, metavar="N",
    help="Hash the password with this many iterations. More iterations make a password harder to "
    "guess from FILE, and connecting slower.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def users(
    path: str,
    add: str | None,
    alter: str | None,
    delete: str | None,
    rights: str | None,
    password: bool,
    password_file: IO[str] | None,
    no_password: bool,
    iterations: int,
    as_json: bool,
) -> int:
    """Show or change the users, passwords and rights of the Kafka endpoint (`serve --kafka`).

    Without --add, --alter or --delete the command lists the users. The endpoint reads the users
    from FILE if it is started with --kafka-option sasl.users.location=FILE. FILE contains no
    passwords, only SCRAM keys (SCRAM-SHA-256, SCRAM-SHA-512) that verify them. A running endpoint
    reads a changed FILE within 5 seconds; connected clients keep their connections and rights.
    """
    names = [name for name in (add, alter, delete) if name is not None]
    if len(names) > 1:
        raise click.UsageError(
            "--add, --alter and --delete exclude each other: choose a single action"
        )
    asks = password or password_file is not None
    if add is None and alter is None and (asks or rights is not None or no_password):
        raise click.UsageError("--rights and the password options require --add or --alter")
    if no_password and (asks or alter is not None):
        raise click.UsageError(
            "--no-password requires --add, and excludes the other password options"
        )
    if add is not None:
        check_name(add)
        granted = parse_rights("read" if rights is None else rights)
        keys = {} if no_password else _keys(_password(password_file), iterations)
        change_users(path, lambda users: _add(users, User(add, granted, keys), path))
    elif alter is not None:
        if not asks and rights is None:
            raise click.UsageError(
                "no change is requested: pass --rights, --password or --password-file"
            )
        _find(read_users(path), alter, path)
        changed = None if rights is None else parse_rights(rights)
        new = _keys(_password(password_file), iterations) if asks else None

        def change(users: dict[str, User]) -> None:
            old = _find(users, alter, path)
            users[alter] = User(
                alter,
                old.rights if changed is None else changed,
                old.credentials if new is None else new,
            )

        change_users(path, change)
    elif delete is not None:
        change_users(path, lambda users: _delete(users, delete, path))
    return _show(path, names[0] if names else None, as_json=as_json)


def _password(file: IO[str] | None) -> str:
    """Return the password from the first line of a file, or from two prompts without echo."""
    if file is not None:
        try:
            found = file.readline().rstrip("\r\n")
        except UnicodeDecodeError:
            found = ""
        if not found:
            raise click.BadParameter(
                "the first line of the file has no password",
                param_hint="--password-file",
            )
        return found
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask for a password: use --password-file -")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))


def _keys(password: str, iterations: int) -> dict[Mechanism, ScramCredential]:
    return {m: ScramCredential.from_password(m, password, iterations=iterations) for m in SCRAM}


def _add(users: dict[str, User], user: User, path: str) -> None:
    if user.name in users:
        raise InvalidRequestError(f"{path} has a user {user.name!r} already; use --alter")
    users[user.name] = user


def _delete(users: dict[str, User], name: str, path: str) -> None:
    _find(users, name, path)
    del users[name]


def _find(users: dict[str, User], name: str, path: str) -> User:
    if name not in users:
        known = ", ".join(users) or "none"
        raise InvalidRequestError(f"{path} has no user {name!r}; its users: {known}")
    return users[name]


def _show(path: str, changed: str | None, *, as_json: bool) -> int:
    users = read_users(path)
    if as_json:
        print_json([
            {
                "name": user.name,
                "rights": user.rights_held,
                "mechanisms": sorted(user.credentials),
            }
            for user in users.values()
        ])  # fmt: skip
    elif changed is not None:
        click.echo(f"Completed updating config for user {changed}.")
    else:
        for user in users.values():
            rights = ",".join(user.rights_held) or "nothing"
            ways = ",".join(sorted(user.credentials)) or "a client certificate"
            click.echo(f"{user.name}\tmay {rights}\tby {ways}")
    return EXIT_OK
