"""`python -m tests.damage --write HOME`: run a home's damages, and write its table again."""

import argparse
import sys
from importlib import import_module

from tests.damage.actions import without_waiting
from tests.damage.damages import DAMAGES, damaged
from tests.damage.judge import Judge
from tests.damage.model import COLUMNS
from tests.damage.table import Table, expected_of, read_table, write_table


@without_waiting()
def main() -> int:
    """Run the damages; return 1 if a row breaks a rule that the table doesn't know."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    parser.add_argument("home", help="Module of the home: bucket, log_dir, ...")
    parser.add_argument("--write", action="store_true", help="Write the table.")
    parser.add_argument("--accept-wrong", action="store_true", help="Add broken rules, too.")
    parser.add_argument("--kind", default="", help="Only kinds whose names contain this.")
    parser.add_argument("--damage", default="", help="Only damages whose names contain this.")
    given = parser.parse_args()
    home = import_module(f"tests.damage.{given.home}").home()
    judge, before, table, fresh = Judge(home), read_table(home.name), Table(), 0
    for kind in home.kinds:
        for name in DAMAGES:
            files = damaged(home.files, kind, name)
            if files is None:
                continue
            key = kind.name, name
            if given.kind not in kind.name or given.damage not in name:
                if key in before:
                    table[key] = before[key]
                continue
            row = judge.row(files, kind, name)
            table[key] = expected_of(row)
            known = before[key].known if key in before else set()
            new = row.broken - known
            fresh += len(new)
            if not given.accept_wrong:
                table[key].known -= new
            print(f"{kind.name} | {name} | {' | '.join(row.words[name] for name in COLUMNS)}")
            for rule in sorted(row.broken):
                print(f"  {'NEW' if rule in new else ' ! '} {rule}")
            if given.kind:
                for action, text in row.texts.items():
                    print(f"    {action}: {text}")
    if given.write:
        write_table(home.name, table)
    print(f"{len(table)} rows, {sum(len(row.known) for row in table.values())} broken rules known, "
          f"{fresh} new")  # fmt: skip
    return bool(fresh and not given.accept_wrong)


sys.exit(main())
