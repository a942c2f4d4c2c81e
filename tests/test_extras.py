"""What is said where a library of an extra is missing."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import sparklog
from sparklog import extras
from sparklog.errors import InvalidRequestError
from tests.paths import ROOT


def python(code: str, tmp_path: Path, *missing: str) -> str:
    """Run it where `missing` are not installed; return the last line of stderr."""
    for name in missing:
        (tmp_path / f"{name}.py").write_text(
            f"raise ModuleNotFoundError('No module named {name}', name={name!r})"
        )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    return done.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize(
    "code",
    ["import sparklog.sink", "import sparklog.sink.options", "import sparklog; "
     "sparklog.register(None)", "import sparklog; sparklog.spark_conf()"],
)  # fmt: skip
def test_without_pyspark(code: str, tmp_path: Path) -> None:
    said = python(code, tmp_path, "pyspark")
    assert said.endswith("Error: pyspark isn't installed here; run: pip install 'sparklog[spark]'")


def test_the_source_s_options_do_without(tmp_path: Path) -> None:
    assert python("import sparklog.source.options, sparklog.session", tmp_path, "pyspark") == ""


def test_without_pandas(tmp_path: Path) -> None:
    code = "from sparklog.extras import needed\nwith needed(): import pandas"
    said = python(code, tmp_path, "pandas")
    assert said.endswith("pandas isn't installed here; run: pip install 'sparklog[spark]'")


def test_without_cryptography(tmp_path: Path) -> None:
    code = (
        "from sparklog.tiered.encryption.envelope import DataKey\n"
        "DataKey(bytes(32), '', 1)"
    )
    said = python(code, tmp_path, "cryptography")
    assert said.endswith(
        "cryptography isn't installed here; run: pip install 'sparklog[encryption]'"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("ui LOG --listen 0", "sparklog[ui]"),
        ("ui LOG --export -", "sparklog[ui]"),
        ("serve LOG --ui 0", "sparklog[ui]"),
        ("serve LOG --once", ""),
        ("topics list LOG", ""),
    ],
)
def test_pages_need_their_extra_and_nothing_else_does(
    tmp_path: Path, arguments: str, said: str
) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
    command = arguments.replace("LOG", str(tmp_path / "log")).split()
    code = f"import sys; sys.argv[1:] = {command}; from sparklog.cli import main; main()"
    last = python(code, tmp_path, "jinja2", "markupsafe", "starlette", "uvicorn")
    assert last.endswith(f" isn't installed here; run: pip install '{said}'" if said else "")


def test_what_is_no_extra_s_goes_on_as_it_is() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'nowhere'"), extras.needed():
        import nowhere  # type: ignore[import-not-found]  # noqa: F401


def test_as_another_error() -> None:
    kafka = pytest.raises(InvalidRequestError, match=r"sparklog\[kafka\]")
    with kafka, extras.needed(InvalidRequestError):
        raise ModuleNotFoundError("none", name="confluent_kafka.admin")


def test_each_extra_has_its_library() -> None:
    """As pyproject.toml says, under the names that are imported."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for library, name in extras._EXTRAS.items():
        wanted = {re.split(r"[<>=]", one)[0].strip().replace("-", "_") for one in extra[name]}
        assert library in wanted | {"py4j", "markupsafe", "anyio", "h11"}  # which others bring


def test_without_fsspec_a_url_of_s3_asks_for_all_that_it_needs(tmp_path: Path) -> None:
    said = python("import sparklog; sparklog.open('s3://bucket/log')", tmp_path, "fsspec")
    assert said.endswith("a package is missing, run: pip install 'sparklog[s3]'")
