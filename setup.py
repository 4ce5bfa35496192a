"""Compiles the kernels where there is a C compiler; all runs without them too, slower.

A kernel is a module in a folder `kernel` that imports `cython`. What else lies there is for kernels that run as plain
Python, and is not compiled. With ERUCA_PLAIN=1 nothing is compiled, and the wheel fits every platform.
"""

import os
import re
import tomllib
from glob import glob
from pathlib import Path

from setuptools import Extension, setup

FOLDERS = "src/eruca/**/kernel"
RELATIVE_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s]+)(?=\))")


def make_kernels() -> list[Extension]:
    """Translate the kernels into C; nothing with ERUCA_PLAIN=1."""
    if os.environ.get("ERUCA_PLAIN", "") not in {"", "0"}:
        return []
    from Cython.Build import cythonize

    declared = sorted(glob(f"{FOLDERS}/*.pxd", recursive=True))
    sources = [
        path for path in sorted(glob(f"{FOLDERS}/*.py", recursive=True)) if "import cython" in Path(path).read_text()
    ]
    kernels = cythonize(
        [
            Extension(
                path.removeprefix("src/").removesuffix(".py").replace("/", "."),
                [path],
                depends=declared,
                extra_compile_args=["-O2", "-g0"],
            )
            for path in sources
        ],
        build_dir="build",
        include_path=["src"],  # where one kernel finds what another declares
        compiler_directives={"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True},
    )
    for extension in kernels:
        # A machine without compiler gets a plain installation instead of an error. Only here, because `cythonize`
        # makes extensions of its own, which know nothing of it.
        extension.optional = True
    return list(kernels)


def describe() -> str:
    """Return the README as the package index shows it: with absolute links to the files of this version."""
    source = tomllib.loads(Path("pyproject.toml").read_text())["project"]["urls"]["Source"]
    version = re.search(r'^__version__ = "(.+)"$', Path("src/eruca/__init__.py").read_text(), re.MULTILINE)[1]
    return RELATIVE_LINK.sub(rf"{source}/blob/v{version}/\1", Path("README.md").read_text(encoding="utf-8"))


setup(
    ext_modules=make_kernels(),
    long_description=describe(),
    long_description_content_type="text/markdown",
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
