"""The ways of docs/deploying.md to bring the package and the jar to a cluster."""

import json
import os
import socket
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest

import sparklog
from sparklog.jvm.jar import jar
from tests.depth import by_depth
from tests.examples import load
from tests.paths import EXAMPLES, ROOT
from tests.ports import free_ports
from tests.spark import deployed
from tests.spark.conftest import environment
from tests.spark.jvm import QUICK, quick
from tests.tiered.s3 import S3Server
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.deep]
APPLICATION = Path(deployed.__file__)
PROGRAMS = Path(pyspark.__file__).parent / "bin"
CLUSTER = {
    "spark.master": "local-cluster[1,1,1024]", "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "1",
}  # fmt: skip
SUFFIXES = {".py", ".so", ".pxd", ".scala", ".jar"}
ROWS = deployed.VALUES
BY_JVM, BY_PYTHON = ["jvm", "jvm", ROWS], ["python", "python", ROWS]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the wheel, named *.zip."""
    path = tmp_path_factory.mktemp("package") / "sparklog.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.write(ROOT / "pyspark_sparklog.py", "pyspark_sparklog.py")
        for file in sorted((ROOT / "sparklog").rglob("*")):
            if file.name == "SHA256SUMS" or (
                file.suffix in SUFFIXES and ".cpython-" not in file.name
            ):
                packed.write(file, file.relative_to(ROOT))
    return path


def make_python(home: Path, package: Path | None = None) -> Path:
    """Return the Python of a new virtual environment, which has sparklog's libraries."""
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    libraries = [str(Path(module.__file__).parents[1]) for module in (pyspark, pytest)]
    (site / "libraries.pth").write_text("\n".join(libraries))  # editable installs aren't followed
    if package is not None:
        with zipfile.ZipFile(package) as packed:
            packed.extractall(site)
    return home / "bin" / "python"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Path:
    """A Python with sparklog."""
    return make_python(tmp_path_factory.mktemp("installed") / "env", package)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without sparklog."""
    return make_python(tmp_path_factory.mktemp("bare") / "env")


class Submit:
    """spark-submit in a directory of its own, to a cluster of processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "logs").mkdir()

    def environment(self, **more: str) -> dict[str, str]:
        dropped = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
        return {k: v for k, v in environment().items() if k not in dropped} | more

    def run(
        self, *words: object, program: str = "spark-submit", given: str = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        conf = {**CLUSTER, "spark.executor.extraJavaOptions": quick()}
        settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        return subprocess.run(
            [str(PROGRAMS / program), *settings, *map(str, words)], input=given,
            env=self.environment(**more), cwd=self.directory, capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip

    def __call__(self, *words: object, calls: str = "", ships: object = "", **more: str) -> Any:
        """Run the application; return its results."""
        directory = self.directory / "logs"
        done = self.run(*words, APPLICATION, directory, calls, ships, **more)
        assert done.returncode == 0, done.stderr[-5000:]
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def submit(tmp_path: Path) -> Submit:
    return Submit(tmp_path)


def test_jars_and_an_installed_wheel(submit: Submit, installed: Path, tmp_path: Path) -> None:
    """The application calls nothing of sparklog: Spark finds the package."""
    file = tmp_path / "sparklog.jar"
    command = [installed, "-m", "sparklog.cli", "spark-conf", "--jar", file]
    subprocess.run(command, env=submit.environment(), cwd=tmp_path, check=True, timeout=300)
    found = submit("--jars", file, PYSPARK_PYTHON=str(installed))
    assert found["driver"] == found["executor"][0] == str(installed)
    assert_all_works(found, BY_JVM)


def test_workers_with_another_python(
    submit: Submit, installed: Path, package: Path, tmp_path: Path
) -> None:
    other = str(make_python(tmp_path / "other", package))
    pythons = {"PYSPARK_DRIVER_PYTHON": str(installed), "PYSPARK_PYTHON": other}
    found = submit(calls="enable", **pythons)
    assert (found["driver"], found["executor"][0]) == (str(installed), other)
    assert_all_works(found, BY_JVM)


def assert_all_works(found: dict[str, Any], by: list[object]) -> None:
    """Check batches and streams, with the jar (if `by` is BY_JVM) and without it."""
    assert found["executor"][2] == any((ROOT / "sparklog" / "format").glob("kernel*.so"))
    assert (found["batch"], found["python batch"]) == (ROWS, ROWS), found
    assert (found["stream"], found["python stream"]) == (by, BY_PYTHON), found


@pytest.fixture
def environment_archive(installed: Path, tmp_path: Path) -> Path:
    """A packed virtual environment."""
    path = tmp_path / "environment.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as packed:
        packed.add(installed.parents[1], ".")
    return path


def test_an_archive_is_unpacked_in_the_drivers_directory_too(
    submit: Submit, environment_archive: Path
) -> None:
    with tarfile.open(environment_archive) as packed:
        packed.extractall(submit.directory / "env", filter="fully_trusted")
    archive = f"{environment_archive}#env"
    found = submit("--archives", archive, calls="enable", PYSPARK_PYTHON="./env/bin/python")
    python = Path(found["executor"][0])
    assert python.name == "python" and submit.directory not in python.parents
    assert_all_works(found, BY_JVM)


def test_an_archive_that_the_driver_has_not_is_named(
    submit: Submit, installed: Path, environment_archive: Path
) -> None:
    script = submit.directory / "application.py"
    script.write_text(REGISTER)
    pythons = {"PYSPARK_DRIVER_PYTHON": str(installed), "PYSPARK_PYTHON": "./env/bin/python"}
    done = submit.run("--archives", f"{environment_archive}#env", script, **pythons)
    assert done.returncode == 0, done.stderr[-5000:]
    assert f"run ./env/bin/python, which is missing in the driver's directory {submit.directory}: "\
        "Spark starts it on the driver too" in done.stdout  # fmt: skip
    assert "unpack the archive there" in done.stdout


REGISTER = """
from pyspark.sql import SparkSession
import sparklog
try:
    sparklog.register(SparkSession.builder.getOrCreate())
except sparklog.InvalidRequestError as error:
    print(error, flush=True)
"""


# The next test enables the JVM's data path with the same package.
@pytest.mark.parametrize("calls", by_depth(small=[], ci=["register"], all=["register", "enable"]))
def test_py_files(submit: Submit, bare: Path, package: Path, calls: str) -> None:
    found = submit("--py-files", package, calls=calls, PYSPARK_PYTHON=str(bare))
    assert_all_works(found, BY_JVM if calls == "enable" else BY_PYTHON)


def test_a_package_that_a_running_session_ships(submit: Submit, bare: Path, package: Path) -> None:
    found = submit(calls="enable", ships=package, PYSPARK_PYTHON=str(bare))
    assert_all_works(found, BY_JVM)


def test_executors_without_the_package(
    submit: Submit, installed: Path, bare: Path, package: Path, tmp_path: Path
) -> None:
    """The JVM reads and writes there nevertheless; jvm=false needs the package."""
    python = tmp_path / "python"  # only the worker of a cluster sets the variable
    choice = f'[ -n "$SPARK_LOG_URL_STDOUT" ] && exec {bare} "$@"\nexec {installed} "$@"\n'
    python.write_text(f"#!/bin/sh\n{choice}")
    python.chmod(0o755)
    found = submit(calls="enable", PYSPARK_PYTHON=str(python))
    assert "No module named 'sparklog'" in found["executor"]
    assert (found["batch"], found["stream"]) == (ROWS, BY_JVM), found
    for name in ("python batch", "python stream"):
        assert (
            f"{bare}, which can't load sparklog {sparklog.__version__}: No module named"
            in (found[name])
        )


SCALA = """
val path = sys.env("LOG")
val rows = spark.range(100).selectExpr("cast(id as string) value")
rows.write.format("sparklog").mode("append").
  option("path", path).option("topic", "t").save()
val source = spark.readStream.format("sparklog").option("path", path).
  option("subscribe", "t").option("startingOffsets", "earliest").load().select("value")
source.writeStream.format("sparklog").option("path", path).option("topic", "copy").
  option("checkpointLocation", path + "-checkpoint").
  trigger(org.apache.spark.sql.streaming.Trigger.AvailableNow).start().awaitTermination()
def count(topic: String) = spark.read.format("sparklog").option("path", path).
  option("subscribe", topic).load().count()
for (topic <- Seq("t", "copy")) println(s"rows of $topic: ${count(topic)}")
"""


def test_scala_in_a_spark_shell(submit: Submit, installed: Path) -> None:
    pythons = {"PYSPARK_PYTHON": str(installed), "LOG": str(submit.directory / "logs" / "scala")}
    done = submit.run(
        "--jars", jar(), program="spark-shell", given=SCALA, **pythons
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    assert f"rows of t: {ROWS}\n" in done.stdout, done.stdout + done.stderr[-5000:]
    assert f"rows of copy: {ROWS}\n" in done.stdout, done.stdout + done.stderr[-5000:]


@pytest.mark.s3
def test_a_standalone_cluster_and_a_log_in_a_bucket(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Master, worker and driver are processes that see no file of the others'."""
    cluster = load("cluster", monkeypatch)
    given, (port,) = s3.options(), free_ports(1)
    settings = environment(
        AWS_ENDPOINT_URL=given["endpoint_url"], AWS_ACCESS_KEY_ID=given["key"],
        AWS_SECRET_ACCESS_KEY=given["secret"], AWS_DEFAULT_REGION="us-east-1",
        SPARK_DAEMON_JAVA_OPTS=QUICK,
    )  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    attempt = ["unshare", *user, "--mount-proc", "--pid", "--fork", "true"]
    if subprocess.run(attempt, capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    base, master = tmp_path / "hosts", f"spark://{cluster.HERE}:{port}"
    base.mkdir()
    conf = cluster.SETTINGS | {
        "spark.executor.extraJavaOptions": quick(), "spark.jars": jar(), "spark.master": master
    }  # fmt: skip
    words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    url, checkpoint = f"{s3.bucket()}/log", f"{base}/driver/checkpoint"
    script = EXAMPLES / "kubernetes" / "application.py"
    hosts = []
    try:
        hosts.append(
            cluster.host(
                base, "master", cluster.SPARK_CLASS, "org.apache.spark.deploy.master.Master",
                "--host", cluster.HERE, "--port", str(port), "--webui-port", "0",
            )
        )  # fmt: skip
        hosts.append(cluster.worker(base, "worker", master))
        submit = str(PROGRAMS / "spark-submit")
        driver = cluster.host(base, "driver", submit, *words, str(script), url, checkpoint)
        hosts.append(driver)
        output, _ = driver.communicate(timeout=300)
    finally:
        for host in hosts:
            host.kill()
            host.wait()
    assert driver.returncode == 0
    assert output.splitlines()[-2:] == ["orders 1000", "copies 1000"]
    assert not list(base.iterdir())


CLIENT = """
import sys
from pyspark.sql import SparkSession

path, remote = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
rows = spark.range(100).selectExpr("cast(id as string) value")
rows.write.format("sparklog").mode("append").options(path=path, topic="t").save()
given = {"path": path, "subscribe": "t", "startingOffsets": "earliest"}
source = spark.readStream.format("sparklog").options(**given).load().select("value")
writer = source.writeStream.format("sparklog").options(path=path, topic="copy")
writer = writer.option("checkpointLocation", path + "-checkpoint").trigger(availableNow=True)
writer.start().awaitTermination(240)
print(spark.read.format("sparklog").options(path=path, subscribe="copy").load().count())
try:
    import sparklog
except ImportError:
    print("no sparklog")
spark.stop()
"""


def test_a_connect_client_without_the_package(submit: Submit, installed: Path, bare: Path) -> None:
    pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status")
    (port,) = free_ports(1)
    settings = {**CLUSTER, "spark.master": "local[2]", "spark.connect.grpc.binding.port": str(port)}
    words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    output = submit.directory / "server.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [
                str(PROGRAMS / "spark-submit"), "--class", server, "--jars", jar(), *words,
                "spark-internal",
            ],
            env=submit.environment(PYSPARK_PYTHON=str(installed)), cwd=submit.directory,
            stdin=subprocess.DEVNULL, stdout=file, stderr=file,
        )  # fmt: skip

    def is_listening() -> bool:
        assert process.poll() is None
        with socket.socket() as attempt:
            return attempt.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(is_listening, "a server", state=output.read_text, pause_s=0.2)
        done = subprocess.run(
            [bare, "-c", CLIENT, submit.directory / "logs" / "connect", f"sc://127.0.0.1:{port}"],
            env=submit.environment(), cwd=submit.directory, capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip
    finally:
        process.kill()
        process.wait()
    assert done.stdout.splitlines()[-2:] == ["100", "no sparklog"], done.stderr[-5000:]
