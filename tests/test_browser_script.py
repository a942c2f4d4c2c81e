"""scripts/browser: which Chromium is taken, what is installed, what is said otherwise."""

import subprocess
from pathlib import Path

import pytest

from tests.test_bootstrap import ROOT, Machine

RUNS, BROKEN = "echo Chromium 140", "echo this is a stub >&2; exit 1"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with nothing; programs are put on it."""
    return Machine(tmp_path)


def run(machine: Machine, **env: str) -> subprocess.CompletedProcess[str]:
    command, given = [ROOT / "scripts" / "browser"], {"PATH": str(machine.bin), **env}
    return subprocess.run(command, env=given, capture_output=True, text=True)


def test_the_one_that_was_named_then_paths(machine: Machine) -> None:
    machine.program("google-chrome", RUNS)
    assert run(machine).stdout.strip() == f"{machine.bin}/google-chrome"
    machine.program("chromium", RUNS)
    assert run(machine).stdout.strip() == f"{machine.bin}/chromium"
    machine.program("mine", RUNS)
    named = f"{machine.bin}/mine"
    assert run(machine, SPARKLOG_BROWSER=named).stdout.strip() == named


def test_a_stub_is_passed_over(machine: Machine) -> None:
    machine.program("chromium", BROKEN)
    machine.program("chromium-browser", RUNS)
    assert run(machine).stdout.strip() == f"{machine.bin}/chromium-browser"


def test_root_on_debian_installs_it(machine: Machine) -> None:
    log = machine.root / "apt.log"
    made = f"{machine.bin}/chromium"
    machine.program("id", "echo 0")
    machine.program(
        "apt-get",
        f'echo "$@" >> {log}; if [ "$1" = install ]; then '
        f"printf '#!/bin/bash\\necho Chromium\\n' > {made}; chmod 755 {made}; fi",
    )
    done = run(machine)
    assert (done.returncode, done.stdout.strip()) == (0, made)
    assert "install" in log.read_text()
    machine.program("apt-get", "exit 100")
    (machine.bin / "chromium").unlink()
    done = run(machine)
    assert (done.returncode, done.stdout) == (1, "")
    assert "could not be installed" in done.stderr


@pytest.mark.parametrize(
    ("manager", "words"),
    [("apt-get", "sudo apt-get install"), ("dnf", "sudo dnf"), ("brew", "brew install"),
     ("", "install Chromium")],
)  # fmt: skip
def test_others_are_told_what_to_run(machine: Machine, manager: str, words: str) -> None:
    if manager:
        machine.program(manager, "exit 1")
    done = run(machine)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
