"""Builds the compiled twins of the hot modules where there is a C compiler; all runs without them too, slower."""

import os
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

HOT = cythonize(
    [
        Extension(
            f"eruca.wire.{name}",
            [f"src/eruca/wire/{name}.py"],
            depends=sorted(glob("src/eruca/wire/hot*.pxd")),
            extra_compile_args=["-O2", "-g0"],
        )
        for name in ("hot", "hotread", "hotcolumns", "hotproperties", "hotpack", "hotbatch", "hotsend", "hotreplay")
    ],
    build_dir="build",
    include_path=["src"],  # where one hot module finds what another declares
    compiler_directives={"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True},
)

for extension in HOT:
    # A machine without compiler gets a plain installation instead of an error. Only here, because `cythonize` makes
    # extensions of its own, which know nothing of it.
    extension.optional = True

setup(ext_modules=HOT, options={"build_ext": {"parallel": os.cpu_count() or 1}})
