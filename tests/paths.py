"""Where the checkout lies, for tests that read or copy parts of it."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
GOLDEN: Final = ROOT / "tests" / "golden"
EXAMPLES: Final = ROOT / "examples"
