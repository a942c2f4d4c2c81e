"""Which of `log_path`'s homes a test is for."""

import pytest

IN_LOG_DIR = pytest.mark.parametrize("log_path", ["directory"], indirect=True)
"""Of a test that looks at files, or asks for what log dirs alone have."""
