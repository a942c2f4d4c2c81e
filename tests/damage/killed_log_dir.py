"""The home in a log dir whose writer was killed."""

from tests.damage.log_dir import killed as home

__all__ = ["home"]
