"""What a fresh clone needs: which Java is taken, what is installed, what is said otherwise."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

TOOLS = ("bash", "env", "sed", "grep", "head", "readlink", "dirname", "cat", "mkdir", "chmod")


@pytest.fixture
def machine(tmp_path):
    """A machine with nothing but `TOOLS`; programs and Javas are put on it."""
    return Machine(tmp_path)


class Machine:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.program("id", "echo 1000")

    def program(self, name: str, script: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def java(self, name: str, version: str, *, whole: bool = True) -> Path:
        home = self.root / name
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        java.write_text(_java(version, whole=whole))
        java.chmod(0o755)
        return home

    def run(self, **env: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(self.bin), "JVM_DIR": str(self.root / "jvm"), **env}
        command = [ROOT / "scripts" / "java"]
        return subprocess.run(command, env=env, capture_output=True, text=True)


def _java(version: str, *, whole: bool) -> str:
    modules = "java.base@1" + ("\njdk.incubator.vector@1" if whole else "")
    return (
        "#!/bin/bash\nif [ $1 = -version ]; then\n"
        f"echo 'openjdk version \"{version}\" 2025-04-15' >&2\nelse echo '{modules}'\nfi\n"
    )


@pytest.mark.parametrize("version", ["17.0.15", "17", "21.0.2", "25-ea"])
def test_java_home_is_taken(machine, version):
    home = machine.java("mine", version)
    done = machine.run(JAVA_HOME=str(home))
    assert (done.returncode, done.stdout.strip()) == (0, str(home))


@pytest.mark.parametrize(
    ("version", "whole"), [("1.8.0_402", True), ("11.0.2", True), ("25", False)]
)
def test_an_unfit_java_home_is_passed_over(machine, version, whole):
    unfit = machine.java("mine", version, whole=whole)
    good = machine.java("jvm/other", "17.0.1")
    assert machine.run(JAVA_HOME=str(unfit)).stdout.strip() == str(good)
    (machine.bin / "java").symlink_to(machine.java("path", "21.0.1") / "bin" / "java")
    assert machine.run(JAVA_HOME=str(unfit)).stdout.strip() == str(machine.root / "path")


def test_root_on_debian_installs_it(machine):
    machine.program("id", "echo 0")
    java = machine.root / "jvm" / "new" / "bin" / "java"
    machine.program(
        "apt-get",
        f'echo "$@" >> {machine.root}/calls\n[ "$1" = update ] && exit 0\n'
        f"mkdir -p {java.parent}; cat > {java} <<'X'\n{_java('17.0.9', whole=True)}X\n"
        f"chmod +x {java}",
    )
    done = machine.run()
    assert (done.returncode, done.stdout.strip()) == (0, str(machine.root / "jvm" / "new"))
    calls = (machine.root / "calls").read_text()
    assert "openjdk-17-jre-headless" in calls
    assert "--no-install-recommends" in calls


def test_elsewhere_it_names_the_one_command(machine):
    machine.program("apt-get", "exit 1")
    done = machine.run()
    assert done.returncode == 1
    assert done.stdout == ""
    assert "    sudo apt-get install -y openjdk-17-jre-headless" in done.stderr


def test_an_old_python_is_refused(machine, tmp_path):
    machine.program("oldpython", '[ "$1" = -V ] && echo Python 3.9.1; exit 1')
    done = subprocess.run(
        [
            "make",
            "-s",
            f"PYTHON={machine.bin}/oldpython",
            f"VENV={tmp_path}/v",
            f"{tmp_path}/v/.demo",
        ],
        cwd=ROOT,
        env={**os.environ, "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "needs Python 3.11 or later" in done.stderr
    assert "Python 3.9.1" in done.stderr
    assert not (tmp_path / "v").exists()


def test_ci_calls_make_test():
    script = (ROOT / ".ci" / "run").read_text()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    commands = [line for line in script.splitlines() if "make" in line and not line.startswith("#")]
    assert commands == ['exec make test DEPTH="${DEPTH:-ci}" </dev/null']
