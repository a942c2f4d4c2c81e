"""The table of damages of a log-backed checkpoint."""

import pytest

from tests.damage.checkpoint import home
from tests.damage.checks import check_kind, check_names, check_undamaged, kinds_in


def test_the_table_has_every_kind_and_damage() -> None:
    check_names(home())


def test_the_undamaged_checkpoint_is_whole() -> None:
    check_undamaged(home())


@pytest.mark.parametrize("kind", kinds_in("checkpoint"))
def test_damages(kind: str) -> None:
    check_kind(home(), kind)
