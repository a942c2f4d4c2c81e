"""Words for people."""

from sparklog.pluralize import pluralize


def test_one_is_no_plural() -> None:
    assert [pluralize(n, "record") for n in (0, 1, 2)] == ["0 records", "1 record", "2 records"]
    assert [pluralize(n, "copy", "copies") for n in (1, 7)] == ["1 copy", "7 copies"]
