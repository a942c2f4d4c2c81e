"""The table of damages of a log dir that was closed."""

import pytest

from tests.damage.checks import check_kind, check_names, check_undamaged, kinds_in
from tests.damage.log_dir import home


def test_the_table_has_every_kind_and_damage() -> None:
    check_names(home())


def test_the_undamaged_log_is_whole() -> None:
    check_undamaged(home())


@pytest.mark.parametrize("kind", kinds_in("log_dir"))
def test_damages(kind: str) -> None:
    check_kind(home(), kind)
