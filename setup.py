"""Compiles the record kernel. Without a compiler (or Cython) the package installs all the same."""

from setuptools import setup

KERNEL = ("kernel", "framer", "parser", "offset_map", "record_filter", "state_entries")

try:
    from Cython.Build import cythonize
except ImportError:
    extensions = []
else:
    extensions = cythonize([f"sparklog/format/{name}.py" for name in KERNEL], quiet=True)
    for extension in extensions:
        extension.optional = True  # a failed build is a warning; the .py then runs interpreted
        # Helpers take memoryviews by value: 208 bytes a call, or nothing once they are inlined.
        extension.extra_compile_args = ["--param", "max-inline-insns-single=2000"]

setup(ext_modules=extensions)
