"""Compile the record kernel, and build the jars for Spark's JVM.

Both are optional: without a C compiler or Cython, the package has an interpreted kernel; without
Maven and Java, sparklog compiles a jar at first use, on the host that starts Spark.
"""

import pathlib
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = pathlib.Path(__file__).resolve().parent
KERNEL = ("kernel", "framer", "parser", "offset_map", "record_filter", "state_entries")
PYTHON = (3, 11)  # the oldest: the kernel uses only the C API that later versions keep (abi3)

try:
    from Cython.Build import cythonize
except ImportError:
    extensions = []
else:
    extensions = cythonize([f"sparklog/format/{name}.py" for name in KERNEL], quiet=True)
    for extension in extensions:
        extension.optional = True  # a failed build is a warning; the .py then runs interpreted
        extension.py_limited_api = True
        extension.define_macros.append(("Py_LIMITED_API", "0x{:02x}{:02x}0000".format(*PYTHON)))
        # Helpers take memoryviews by value, which copies 208 bytes per call unless it is inlined.
        extension.extra_compile_args = ["--param", "max-inline-insns-single=2000"]
        extension.extra_link_args = ["-Wl,--strip-all"]


def build_jars():
    # A source distribution contains the jars, and not this script.
    script = ROOT / "scripts" / "jars.py"
    if script.is_file() and subprocess.call([sys.executable, script]) != 0:
        print("warning: the package has no jars; sparklog will compile them at first use")


class BuildPy(build_py):
    """Copies modules into an empty directory.

    A wheel contains all files of that directory, including modules of an earlier build that were
    deleted since.
    """

    def run(self):
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
            build_jars()
            self.__dict__.pop("data_files", None)  # listed before the jars were built
        super().run()


class Sdist(sdist):
    """Contains the jars."""

    def run(self):
        build_jars()
        super().run()


setup(
    ext_modules=extensions,
    cmdclass={"build_py": BuildPy, "sdist": Sdist},
    options={"bdist_wheel": {"py_limited_api": "cp{}{}".format(*PYTHON)}} if extensions else {},
)
