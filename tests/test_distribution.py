"""Wheel and sdist: what is in them, and that they work where there is nothing else of sparklog."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.jvm.compiler import sources
from sparklog.jvm.packaged_jar import jar_name
from tests import docker, other_sparks
from tests.built_jars import FOLDER, built_jars, clone, with_jars
from tests.depth import DEPTH, by_depth
from tests.jars import Unavailable, or_skip
from tests.paths import ROOT
from tests.spark.jvm import QUICK, quick

pytest.importorskip("setuptools", minversion="77", reason="the build backend of pyproject.toml")
BUILD = "from setuptools import build_meta as b; b.build_sdist('out'); b.build_wheel('out')"
USE = """
import json, sys
import pyarrow as pa
import sparklog
from sparklog.format import kernel
with sparklog.open(sys.argv[1], mode="rw") as log:
    log.create_topic("alerts", partitions=2, config={"compression.type": "zstd"})
    log.append("alerts", pa.table({"key": ["a", "b"], "value": ["late", "later"]}))
with sparklog.open(sys.argv[1]) as log:
    values = log.read("alerts").read_all()["value"].to_pylist()
print(json.dumps([kernel.__file__, sorted(values) == [b"late", b"later"]]))
"""
"""A script that says by which kernel it wrote a log, and whether it read that back."""
KERNEL = {path.stem for path in (ROOT / "sparklog/format").glob("*.pxd")} - {"intrinsics"}
KERNEL_FILE = "kernel.abi3.so"


def run(*command: object, **given: object) -> str:
    """Run it; return what it printed."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=900, **given
    )  # type: ignore[call-overload]
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return str(done.stdout)


def bare(**more: str) -> dict[str, str]:
    """An environment in which nothing of this one is found, but for pip's own settings."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), **kept, **more}


@pytest.fixture(scope="module")
def jars() -> Path:
    """The jars, which have the digests in the repository; skips where Maven can't bring Spark."""
    with or_skip("jars"):
        return built_jars()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, jars: Path) -> Path:
    """A directory with the two; without a C compiler, for its time."""
    tree = with_jars(clone(tmp_path_factory.mktemp("tree")))
    (tree / "build" / "lib" / "sparklog").mkdir(parents=True)
    (tree / "build" / "lib" / "sparklog" / "deleted.py").write_text("left by an earlier build")
    (tree / "Cython").mkdir()
    (tree / "Cython" / "__init__.py").write_text("raise ImportError")  # C takes a minute
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    run(sys.executable, "-W", "ignore", "-c", BUILD, cwd=tree, env=environment)
    return tree / "out"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, jars: Path) -> Path:
    """What `pip wheel .` makes of a clone, with what pyproject.toml says that it builds with."""
    tree = with_jars(clone(tmp_path_factory.mktemp("clone of mine")))
    flags = {} if DEPTH == "all" else {"CFLAGS": "-O0"}  # half a minute for the optimizer
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", "out", ".",
        cwd=tree, env={**os.environ, **flags})  # fmt: skip
    (found,) = (tree / "out").glob("*.whl")
    return found


class Machine:
    """A virtual environment; sparklog's libraries are those of this one, sparklog itself isn't."""

    def __init__(self, root: Path) -> None:
        venv.create(root / "venv", with_pip=True)
        self.python = root / "venv" / "bin" / "python"
        site = run(self.python, "-c", "import site; print(site.getsitepackages()[0])").strip()
        self.site = Path(site)
        if DEPTH != "all":  # where an editable install of this clone isn't followed
            (self.site / "libraries.pth").write_text(str(Path(pytest.__file__).parents[1]) + "\n")

    def install(self, what: Path, extra: str = "", **environment: str) -> None:
        """Install it as its users do; at depth "all" with its dependencies, freshly."""
        libraries = [] if DEPTH == "all" else ["--no-deps"]
        run(self.python, "-m", "pip", "install", "-q", *libraries, f"{what}{extra}",
            cwd=what.parent, env=bare(**environment))  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine on which sparklog was never seen."""
    return Machine(tmp_path)


def packaged() -> set[str]:
    """Files of git's in the package, and the jars."""
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "sparklog",
                "*_sparklog.py", cwd=ROOT)  # fmt: skip
    jars = {f"{FOLDER}/{jar_name(version)}" for version in ("4.0", "4.1", "4.2")}
    return {name for name in names.splitlines() if (ROOT / name).is_file()} | jars


@pytest.mark.deep
def test_the_wheel_has_all_of_the_package_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
    assert sorted(packaged() - names) == []
    assert sorted(names - packaged()) == []  # of an earlier build, say
    scala = [name for name in names if name.endswith(".scala")]
    assert {f"sparklog/jvm/scala/{name}" for name, _ in sources("4.3")} < set(scala)


@pytest.mark.deep
def test_the_sdist_has_all_of_the_package(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert sorted(packaged() - names) == []
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE"} <= names


@pytest.mark.deep
def test_an_installed_package_finds_its_sources_and_jars(
    built: Path, jars: Path, tmp_path: Path
) -> None:
    """Unpacked as pip does, and imported from a zip, as --py-files has it."""
    wheel = next(built.glob("*.whl"))
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "site")
    look = (
        "from sparklog.jvm import compiler as c; from sparklog.jvm.packaged_jar import packaged_jar"
        "; s = c.sources('4.1.4'); print(c.__file__, packaged_jar('4.1.4', c.sources_digest(s)))"
    )
    for place in (tmp_path / "site", wheel):
        environment = {**os.environ, "PYTHONPATH": str(place)}
        path, jar = run(sys.executable, "-c", look, cwd=tmp_path, env=environment).split()
        assert path.startswith(str(place))
        assert jar.endswith("/jars/sparklog-jvm-4.1.jar")
        assert Path(jar).read_bytes() == (jars / Path(jar).name).read_bytes()


@pytest.mark.deep
def test_a_wheels_kernel_is_compiled_and_needs_the_c_library_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    compiled = {Path(name).name.partition(".")[0] for name in names if name.endswith(".so")}
    assert compiled == KERNEL
    assert not [name for name in names if name.endswith((".c", ".o"))]
    said = " ".join(run(sys.executable, "-m", "auditwheel", "show", wheel).split())
    assert 'platform tag: "manylinux_2_' in said, said


@pytest.mark.deep
@pytest.mark.spark
def test_the_quickstart_runs_from_the_wheel(wheel: Path, machine: Machine, tmp_path: Path) -> None:
    """It streams 336,776 flights, kills the writer and checks itself that each is there once."""
    machine.install(wheel, "[demo]")
    script = tmp_path / "quickstart.py"
    shutil.copy(ROOT / "examples" / "quickstart.py", script)
    told = run(machine.python, "-c", USE, tmp_path / "log", cwd=tmp_path, env=bare())
    assert json.loads(told) == [str(machine.site / "sparklog/format" / KERNEL_FILE), True]
    java = {
        "JAVA_HOME": os.environ["JAVA_HOME"], "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LAUNCHER_OPTS": QUICK, "SPARK_SUBMIT_OPTS": quick(),
    }  # fmt: skip
    said = run(machine.python, script, cwd=tmp_path, env=bare(**java))
    assert "writer killed (SIGKILL)" in said
    assert "each of the 336,776 flights is there exactly once" in said


README = """
import sys
import sparklog
from pyspark.sql import SparkSession
from sparklog.jvm.jar import jar
from sparklog.sink import SegmentSink

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
for key, value in sparklog.spark_conf().items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
place = sys.argv[1]
flights = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 600).load()
flights = flights.selectExpr("concat('N', value % 9) AS key", "cast(value AS string) AS value")
sink = SegmentSink(place + "/log", "flights", partitions=4)
writer = flights.writeStream.foreachBatch(sink).option("checkpointLocation", place + "/checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
rows = spark.read.format("sparklog").options(path=place + "/log", subscribe="flights").load()
assert rows.count() == 600
report = sparklog.doctor(spark, place + "/other")
print(report)
assert report.ok
print(spark.version, jar())
"""
# The other jars are compiled from the same sources, and test_other_sparks runs them.
WHEEL_VERSIONS = by_depth(small=[], ci=["4.0.5", ""], all=["", *other_sparks.VERSIONS])
# Spark looks for Python data sources only if `sh` finds its Python.
SHELL = (
    "bash", "sh", "env", "dirname", "cat", "grep", "sed", "ps", "uname", "rm", "mkdir", "id", "ls",
    "chmod", "readlink", "stat",
)  # fmt: skip


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.parametrize("version", WHEEL_VERSIONS)
def test_the_wheel_serves_each_spark_where_nothing_can_be_compiled(
    wheel: Path, machine: Machine, tmp_path: Path, version: str
) -> None:
    """No compiler is on the path, and no directory for a compiled jar is writable."""
    machine.install(wheel)
    with or_skip("PySpark"):
        pyspark = str(other_sparks.pyspark(version)) if version else ""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in SHELL:
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    environment = {
        "PATH": str(tools), "HOME": "/nowhere", "SPARKLOG_CACHE": "/nowhere/cache",
        "JAVA_HOME": os.environ["JAVA_HOME"], "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(machine.python), "PYTHONPATH": pyspark,
        "SPARK_LAUNCHER_OPTS": QUICK, "SPARK_SUBMIT_OPTS": quick(),
    }  # fmt: skip
    said = run(machine.python, "-c", README, tmp_path, cwd=tmp_path, env=environment)
    spark, jar = said.split()[-2:]
    assert spark.startswith(version or "4.3")
    assert Path(jar).parent == machine.site / "sparklog" / "jvm" / "jars"


@pytest.mark.deep
def test_the_sdist_installs_where_there_is_no_compiler(
    built: Path, machine: Machine, tmp_path: Path
) -> None:
    """The kernel runs interpreted then, and says so once; it has no locale either."""
    (sdist,) = built.glob("*.tar.gz")
    machine.install(sdist, CC="/nowhere/cc", LC_ALL="C")
    done = subprocess.run(
        [machine.python, "-c", USE, tmp_path / "log"],
        cwd=tmp_path, env=bare(LC_ALL="C"), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert json.loads(done.stdout) == [str(machine.site / "sparklog/format/kernel.py"), True]
    assert done.stderr.count("sparklog runs its record kernel interpreted") == 1
    advised = done.stderr.partition("install a C compiler, then `")[2].partition("`")[0].split()
    this = tmp_path / "constraints.txt"  # and nothing that an index may have under its name
    this.write_text(f"sparklog @ {sdist.as_uri()}\n")
    environment = bare(PIP_CONSTRAINT=str(this), CFLAGS="-O0")
    run(machine.python, "-m", *advised, cwd=tmp_path, env=environment)
    told = run(machine.python, "-c", USE, tmp_path / "compiled", cwd=tmp_path, env=bare())
    assert json.loads(told) == [str(machine.site / "sparklog/format" / KERNEL_FILE), True]


@pytest.mark.deep
def test_the_wheel_works_in_a_clean_container(wheel: Path) -> None:
    image = f"python:{sys.version_info.major}.{sys.version_info.minor}-slim-bookworm"
    try:
        container = docker.container_class(image)(image)
    except Unavailable as missing:
        pytest.skip(str(missing))
    container.with_volume_mapping(str(wheel.parent), "/wheel").with_command("sleep 600")
    with container:
        code, said = container.exec(["pip", "install", "-q", f"/wheel/{wheel.name}"])
        assert code == 0, said.decode()[-4000:]
        code, said = container.exec(["python", "-c", USE, "/tmp/log"])
        assert code == 0, said.decode()[-4000:]
    path, is_whole = json.loads(said)
    assert path.endswith(f"sparklog/format/{KERNEL_FILE}") and is_whole
