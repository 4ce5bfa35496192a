"""Builds the compiled twin of `eruca.wire.hot` where there is a C compiler; everything runs without it, slower."""

from Cython.Build import cythonize
from setuptools import Extension, setup

# `optional`: a machine without compiler gets a plain installation instead of an error.
HOT = Extension("eruca.wire.hot", ["src/eruca/wire/hot.py"], optional=True, extra_compile_args=["-O2"])

setup(
    ext_modules=cythonize(
        [HOT],
        build_dir="build",
        compiler_directives={"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True},
    )
)
