"""Docker, where there is an engine."""

import contextlib
import re
from typing import Any

import yaml

from tests import jars
from tests.paths import ROOT

FOLDER = ROOT / "docker"


def compose(file: str = "compose.yaml") -> dict[str, Any]:
    """Return a compose file as it is without any variable set."""
    text = (FOLDER / file).read_text()
    found = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))
    assert isinstance(found, dict)
    return found


def container_class(image: str) -> Any:
    """Return testcontainers' container class, if there is an engine that has or gets the image.

    Raises: jars.Unavailable.
    """
    from testcontainers.core.container import DockerContainer

    import docker  # type: ignore[import-untyped]

    try:
        client = docker.from_env(timeout=240)
        client.ping()
        with contextlib.closing(client):
            if not client.images.list(image):
                client.images.pull(image)
    except Exception as error:
        raise jars.Unavailable(f"no Docker engine with {image}: {str(error)[:200]}") from None
    return DockerContainer
