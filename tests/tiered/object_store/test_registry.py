"""Object stores that other packages register, and a package that does so.

The package of tests/object_store_plugin is installed by pip as its users would, and passes the
contracts of a store and of the home of a log.
"""

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import InvalidRequestError
from sparklog.testing import HomeContract, StoreContract
from sparklog.tiered import ObjectStore, ObjectStoreType, open_store
from sparklog.tiered.object_store import registry
from tests.paths import ROOT

PLUGIN = ROOT / "tests" / "object_store_plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package, as `pip install` leaves it."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site-packages")
    for name in ("pyproject.toml", "sparklog_sqlite.py"):  # setuptools builds beside the sources
        (source / name).write_bytes((PLUGIN / name).read_bytes())
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
         "--no-build-isolation", "--disable-pip-version-check", "--target", target, source],
        check=True,
    )  # fmt: skip
    return target


@pytest.fixture
def plugin(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package is installed in this process."""
    monkeypatch.syspath_prepend(installed)
    registry.store_type.cache_clear()
    yield
    registry.store_type.cache_clear()


@pytest.mark.usefixtures("plugin")
class TestStore(StoreContract):
    create_rounds = 5  # each create waits for the disk

    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return open_store(f"sqlite://{tmp_path}/objects.db/pre/fix", part_bytes=self.part_bytes)


@pytest.mark.usefixtures("plugin")
class TestHome(HomeContract):
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        return f"sqlite://{tmp_path}/objects.db/log"


@pytest.mark.usefixtures("plugin")
def test_an_alias_names_the_same_log(tmp_path: Path) -> None:
    with sparklog.open(f"sqlite://{tmp_path}/objects.db/log", "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": [b"a record"]}))
    alias = f"sqlite3://{tmp_path}/objects.db/log"
    with sparklog.open(alias) as log:
        assert pa.Table.from_batches(log.read("t"))["value"].to_pylist() == [b"a record"]
    assert registry.usual_scheme("sqlite3") == "sqlite"


def test_another_process_finds_it(installed: Path, tmp_path: Path) -> None:
    """The command line needs nothing but the installed package."""
    url = f"sqlite://{tmp_path}/objects.db/log"
    for arguments in (["topics", "create", url, "--topic", "t"], ["topics", "list", url]):
        done = subprocess.run(
            [sys.executable, "-m", "sparklog", *arguments],
            env={"PYTHONPATH": f"{ROOT}:{installed}", "PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert "t" in done.stdout.split()


@pytest.mark.usefixtures("plugin")
def test_errors_of_a_registered_store_are_sparklogs(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"want sqlite:///directory/file\.db/"):
        open_store("sqlite://.db/prefix")
    with pytest.raises(InvalidRequestError, match="no storage options"):
        open_store(f"sqlite://{tmp_path}/objects.db", {"key": "secret-value"})
    (tmp_path / "file").touch()
    store = open_store(f"sqlite://{tmp_path}/file/objects.db/x")
    with pytest.raises(sparklog.StorageUnavailableError, match="can't read sqlite://"):
        store.get("a")


def registered(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    points = [EntryPoint("odd", value, registry.GROUP) for value in values]

    def entry_points(*, group: str, name: str) -> list[EntryPoint]:
        return points if (group, name) == (registry.GROUP, "odd") else []

    monkeypatch.setattr(registry, "entry_points", entry_points)
    registry.store_type.cache_clear()


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["no_such_module:STORE"], "can't be imported .ModuleNotFoundError"),
        (["json:no_such_name"], "can't be imported .AttributeError"),
        (["json:dumps"], "is not a sparklog.tiered.ObjectStoreType of this scheme"),
        ([f"{__name__}:OTHER"], "is not a sparklog.tiered.ObjectStoreType of this scheme"),
        (["json:dumps", "json:loads"], "register an object store for this scheme; uninstall"),
    ],
)
def test_a_registration_that_is_wrong_is_named(
    monkeypatch: pytest.MonkeyPatch, values: list[str], why: str
) -> None:
    registered(monkeypatch, *values)
    with pytest.raises(InvalidRequestError, match=why):
        open_store("odd://place")
    registered(monkeypatch, f"{__name__}:ODD")  # a version that works is installed
    assert registry.store_type("odd") is ODD
    registered(monkeypatch)  # the package is uninstalled
    assert registry.store_type("odd").schemes == ("odd",)


def test_a_package_that_is_on_the_path_twice_is_no_conflict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered(monkeypatch, f"{__name__}:ODD", f"{__name__}:ODD")
    assert registry.store_type("odd") is ODD


def test_no_package_replaces_a_built_in_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(**_: str) -> list[EntryPoint]:
        raise AssertionError("the metadata of installed packages is read for unknown schemes only")

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    monkeypatch.setattr(registry, "entry_points", entry_points)
    registry.store_type.cache_clear()
    for scheme in ("s3", "s3a", "gs", "abfs", "hdfs", "memory", "file"):
        assert scheme in registry.store_type(scheme).schemes


OTHER = ObjectStoreType(schemes=("another",), open=registry.store_type("memory").open)
ODD = ObjectStoreType(schemes=("odd",), open=registry.store_type("memory").open)
