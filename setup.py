"""Compiles the kernels where there is a C compiler; all runs without them too, slower.

A kernel is a module in a folder `kernel` that imports `cython`. What else lies there is for kernels that run as plain
Python, and is not compiled.
"""

import os
from glob import glob
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

FOLDERS = "src/eruca/**/kernel"
DECLARED = sorted(glob(f"{FOLDERS}/*.pxd", recursive=True))
SOURCES = [
    path for path in sorted(glob(f"{FOLDERS}/*.py", recursive=True)) if "import cython" in Path(path).read_text()
]

KERNELS = cythonize(
    [
        Extension(
            path.removeprefix("src/").removesuffix(".py").replace("/", "."),
            [path],
            depends=DECLARED,
            extra_compile_args=["-O2", "-g0"],
        )
        for path in SOURCES
    ],
    build_dir="build",
    include_path=["src"],  # where one kernel finds what another declares
    compiler_directives={"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True},
)

for extension in KERNELS:
    # A machine without compiler gets a plain installation instead of an error. Only here, because `cythonize` makes
    # extensions of its own, which know nothing of it.
    extension.optional = True

setup(ext_modules=KERNELS, options={"build_ext": {"parallel": os.cpu_count() or 1}})
