"""examples/other_readers.py: DuckDB, Polars and pandas on `log.read` agree."""

import runpy

import pytest

from tests.paths import EXAMPLES


def test_other_readers(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "other_readers.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    said = {line.split(":")[0].strip(): line.split(": ")[1] for line in lines}
    assert set(said.values()) == {"Oslo 19.50, Lima 9.50, Kyoto -0.50"}
    assert list(said) == ["duckdb", "polars", "pandas"]
