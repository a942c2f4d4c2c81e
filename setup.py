"""Compile the record kernel. Without a compiler or Cython, the package is installed without it."""

import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

KERNEL = ("kernel", "framer", "parser", "offset_map", "record_filter", "state_entries")

try:
    from Cython.Build import cythonize
except ImportError:
    extensions = []
else:
    extensions = cythonize([f"sparklog/format/{name}.py" for name in KERNEL], quiet=True)
    for extension in extensions:
        extension.optional = True  # a failed build is a warning; the .py then runs interpreted
        # Helpers take memoryviews by value, which copies 208 bytes per call unless it is inlined.
        extension.extra_compile_args = ["--param", "max-inline-insns-single=2000"]


class BuildPy(build_py):
    """Copies modules into an empty directory.

    A wheel contains all files of that directory, including modules of an earlier build that were
    deleted since.
    """

    def run(self):
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(ext_modules=extensions, cmdclass={"build_py": BuildPy})
