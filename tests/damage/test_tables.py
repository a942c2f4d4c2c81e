"""The tables of damages: what each command reports of each damaged file, in every home."""

from importlib import import_module

import pytest

from tests.damage.checks import check_kind, check_names, check_undamaged, kinds_in
from tests.damage.model import Home

HOMES = ("bucket", "checkpoint", "killed_log_dir", "log_dir", "stored_checkpoint", "tier")


def home_of(name: str) -> Home:
    """Return the undamaged log of the module `name` of this package."""
    home: Home = import_module(f"tests.damage.{name}").home()
    return home


@pytest.mark.parametrize("name", HOMES)
def test_the_table_has_every_kind_and_damage(name: str) -> None:
    check_names(home_of(name))


@pytest.mark.parametrize("name", HOMES)
def test_the_undamaged_log_is_whole(name: str) -> None:
    check_undamaged(home_of(name))


ROWS = [
    pytest.param(name, kind, marks=pytest.mark.deep if number % 2 else ())
    for name in HOMES
    for number, kind in enumerate(kinds_in(name))
]


@pytest.mark.parametrize(("name", "kind"), ROWS)
def test_damages(name: str, kind: str) -> None:
    check_kind(home_of(name), kind)
