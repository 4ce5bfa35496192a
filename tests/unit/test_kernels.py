"""Kernels are compiled where there is a compiler, from the sources as they are now, and a half is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from eruca._wire.kernel import PLAIN, record
from tests.kernels import NAMES, PATHS, SOURCES, find_built_file, load_twins

each_kernel = pytest.mark.parametrize("name", NAMES)


@each_kernel
def test_the_built_kernel_is_the_one_in_use(name: str) -> None:
    built, kernel = find_built_file(name), import_module(name)
    assert kernel.compiled is (built is not None and not PLAIN)
    assert kernel.__file__ == str(built if kernel.compiled else PATHS[name])


@each_kernel
def test_a_machine_with_a_compiler_has_the_kernel(name: str) -> None:
    """Our machines must measure the compiled loops; one without compiler runs the plain ones."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler is None or find_built_file(name) is not None, (
        f"there is a C compiler ({compiler}) but {name} is not compiled, so everything runs several times slower: "
        "run `python setup.py -q build_ext --inplace` with the project's interpreter"
    )


@each_kernel
def test_the_kernel_is_not_older_than_its_source(name: str) -> None:
    built = find_built_file(name)
    sources = [PATHS[name], *SOURCES.glob("eruca/**/kernel/*.pxd")]
    assert built is None or built.stat().st_mtime >= max(source.stat().st_mtime for source in sources), (
        f"{name} was edited after it was compiled: run `python setup.py -q build_ext --inplace`"
    )


@each_kernel
def test_the_plain_twin_is_plain(name: str) -> None:
    plain = load_twins(name)["plain"]
    assert not plain.compiled
    assert plain.cython.__name__ == "eruca._wire.kernel.nocython"
    assert (plain is import_module(name)) is PLAIN


# --- numbers that are stated twice ------------------------------------------------------------------------------------


def read_declared(path: Path) -> dict[str, int]:
    """The numbers that a file for the compiler declares."""
    lines = [line.split() for line in path.read_text().splitlines()]
    found = {line[0]: int(line[2], 0) for line in lines if len(line) == 3 and line[1] == "=" and line[0].isupper()}
    found |= {
        line[1].removeprefix("ERUCA_RECORD_"): int(line[2].rstrip("u"), 0) for line in lines if line[:1] == ["#define"]
    }
    return found


@pytest.mark.parametrize("name", ["eruca._wire.kernel.record", "eruca._store.kernel.sizes"])
def test_compiled_and_plain_kernels_have_the_same_numbers(name: str) -> None:
    declared = read_declared(SOURCES / f"{name.replace('.', '/')}.pxd")
    plain = {key: value for key, value in vars(import_module(name)).items() if key.isupper() and type(value) is int}
    assert declared == plain
    assert len(declared) >= 5


def test_the_magic_is_among_them() -> None:
    declared = read_declared(SOURCES / "eruca/_wire/kernel/record.pxd")
    assert declared["MAGIC"] == record.MAGIC == 0xDAA320A7


# --- installations ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, as it is installed here."""
    root = tmp_path_factory.mktemp("installation")
    shutil.copytree(SOURCES / "eruca", root / "eruca", ignore=shutil.ignore_patterns("__pycache__"))
    return root


def run(root: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code with a copy of the package."""
    given = {**os.environ, "ERUCA_PLAIN": "", "PYTHONPATH": str(root), **environment}
    return subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=False)


CALL = "import eruca._store.kernel.dispatch as r, eruca._wire.kernel.digest as d; print(r.compiled, d.compiled)"


@pytest.mark.skipif(find_built_file(NAMES[0]) is None, reason="nothing is compiled here")
@pytest.mark.parametrize("hidden", ["_wire.kernel.digest", "_store.kernel.index", "_store.kernel.dispatch"])
def test_a_half_compiled_installation_says_what_to_do(copied: Path, hidden: str) -> None:
    built = find_built_file(f"eruca.{hidden}")
    assert built is not None
    there = copied / built.relative_to(SOURCES)
    aside = there.with_suffix(".hidden")
    there.rename(aside)
    try:
        found = run(copied, CALL)
        assert found.returncode != 0
        last = found.stderr.strip().splitlines()[-1]
        assert last.startswith("ImportError: eruca._store.kernel.")
        assert "make clean setup" in last
        assert "pip install --force-reinstall" in last
        # And there is a way to go on at once.
        assert run(copied, CALL, ERUCA_PLAIN="1").stdout == "False False\n"
    finally:
        aside.rename(there)
    assert run(copied, CALL).stdout == "True True\n"


@pytest.mark.skipif(find_built_file(NAMES[0]) is None, reason="nothing is compiled here")
@pytest.mark.parametrize("hidden", ["_wire.kernel.reading", "_wire.kernel.writing", "_store.kernel.entries"])
def test_a_kernel_that_nobody_calls_in_c_may_be_plain(copied: Path, hidden: str) -> None:
    built = find_built_file(f"eruca.{hidden}")
    assert built is not None
    there = copied / built.relative_to(SOURCES)
    aside = there.with_suffix(".hidden")
    there.rename(aside)
    try:
        code = f"import eruca._store.messagestore, eruca.{hidden} as kernel; print(kernel.compiled)"
        assert run(copied, code).stdout == "False\n"
    finally:
        aside.rename(there)


def test_an_installation_without_compiler_and_cython_works(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
    shutil.copytree(SOURCES / "eruca", tmp_path / "eruca", ignore=ignored)
    code = """if True:
        import sys
        sys.modules["cython"] = None
        import eruca._broker.sending.kernel, eruca._net.http2.kernel, eruca._spark.kernel
        import eruca._store.kernel.dispatch as dispatch
        from eruca._wire.record import Record, decode_record, encode_record
        message = decode_record(encode_record(Record("t", body=b"b", properties=b"p")))
        print(message.topic, message.body, dispatch.compiled)
    """
    assert run(tmp_path, code).stdout == "t b'b' False\n"
