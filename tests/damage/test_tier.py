"""The table of damages of a log dir with copies in a bucket."""

import pytest

from tests.damage.checks import check_kind, check_names, check_undamaged, kinds_in
from tests.damage.tier import home


def test_the_table_has_every_kind_and_damage() -> None:
    check_names(home())


def test_the_undamaged_log_is_whole() -> None:
    check_undamaged(home())


@pytest.mark.parametrize("kind", kinds_in("tier"))
def test_damages(kind: str) -> None:
    check_kind(home(), kind)
