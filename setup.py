"""Builds the compiled twins of the hot modules where there is a C compiler; all runs without them too, slower."""

from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

# `optional`: a machine without compiler gets a plain installation instead of an error.
HOT = [
    Extension(
        f"eruca.wire.{name}",
        [f"src/eruca/wire/{name}.py"],
        depends=sorted(glob("src/eruca/wire/hot*.pxd")),
        optional=True,
        extra_compile_args=["-O2"],
    )
    for name in ("hot", "hotread", "hotcolumns", "hotproperties", "hotpack", "hotbatch", "hotsend", "hotreplay")
]

setup(
    ext_modules=cythonize(
        HOT,
        build_dir="build",
        include_path=["src"],  # where one hot module finds what another declares
        compiler_directives={"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True},
    )
)
