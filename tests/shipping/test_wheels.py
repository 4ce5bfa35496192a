"""From the wheels, outside the checkout, in empty environments without a compiler: what the README promises works."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.clients.guidepage import NAMESERVER, Block, read_blocks
from tests.console.browsing import choose_password
from tests.figures import note_figures
from tests.needs import needs
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S
from tests.shipping.installing import Installed, list_tools, make_installed, name_wheel
from tests.shipping.pythons import fetch_python, list_supported
from tools.archives import find_faults
from tools.dist import build_compiled_wheel
from tools.project import read_version
from tools.releasestore import run_up

README = REPOSITORY / "README.md"
FIXTURE_TEST = """
import pytest

@pytest.mark.asyncio
async def test_async(eruca_producer, eruca_consumer, eruca_topic):
    await eruca_producer.send(eruca_topic, b"one melon")
    async with eruca_consumer(subscribe=eruca_topic) as consumer:
        async for message in consumer:
            assert message.body == b"one melon"
            await message.ack()
            break

def test_plain(eruca_sync_producer, eruca_sync_consumer, eruca_topic):
    eruca_sync_producer.send(eruca_topic, b"two melons")
    with eruca_sync_consumer(subscribe=eruca_topic) as consumer:
        for message in consumer:
            assert message.body == b"two melons"
            message.ack()
            break
"""


@pytest.fixture(scope="module")
def plain(plain_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The plain wheel with nothing but what it needs."""
    return make_installed(tmp_path_factory.mktemp("plain-env"), name_wheel(plain_wheel))


@pytest.fixture(scope="module")
def compiled(compiled_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The compiled wheel with nothing but what it needs."""
    return make_installed(tmp_path_factory.mktemp("compiled-env"), name_wheel(compiled_wheel))


@pytest.fixture(params=["plain", pytest.param("compiled", marks=pytest.mark.whole)])
def installed(request: pytest.FixtureRequest) -> Installed:
    """An environment with each kind of wheel."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Installed)
    said = found.run("eruca", "--version").stdout
    assert re.fullmatch(rf"eruca, version {re.escape(read_version())} \(Python \S+, {request.param}\)\n", said)
    return found


@pytest.fixture
def nameserver(installed: Installed, tmp_path: Path) -> Iterator[str]:
    """`eruca up` of the environment; it has to stop cleanly."""
    command = [str(installed.folder / "bin" / "eruca")]
    with run_up(tmp_path / "data", command, installed.make_environment()) as facts:
        yield facts["nameserver"]


def run_block(installed: Installed, block: Block, nameserver: str) -> list[str]:
    """Run a program of the README as it is, but for the address; returns the lines that it prints."""
    program = installed.home / "program.py"
    program.write_text(block.text.replace(NAMESERVER, nameserver))
    return installed.run("python", str(program), variables={"SPARK_LOCAL_IP": "127.0.0.1"}).stdout.splitlines()


def test_no_compiler_is_found(tmp_path: Path) -> None:
    kept = ("ls", "sh", "java", "grep")
    compilers = ("gcc", "cc", "c++", "x86_64-linux-gnu-gcc-12", "g++", "clang-16", "python3", "ld")
    (tmp_path / "bin").mkdir()
    for name in (*kept, *compilers):
        (tmp_path / "bin" / name).touch()
    links = list_tools(tmp_path / "links", [str(tmp_path / "bin"), str(tmp_path / "nothing")])
    assert {path.name for path in links.iterdir()} == set(kept)


def test_there_is_no_compiler_and_no_checkout(plain: Installed) -> None:
    assert shutil.which("sh", path=plain.path)
    assert [name for name in ("gcc", "cc", "c++", "clang") if shutil.which(name, path=plain.path)] == []
    program = "import eruca, sys, json; print(json.dumps([eruca.__file__, sys.path]))"
    where, paths = json.loads(plain.run("python", "-c", program).stdout)
    assert Path(where).is_relative_to(plain.folder)
    assert not any(Path(path).is_relative_to(REPOSITORY) for path in paths if path)


def test_wheels_are_complete(plain_wheel: Path, source: Path) -> None:
    assert [*find_faults(plain_wheel, read_version()), *find_faults(source, read_version())] == []


def test_broker_and_client(installed: Installed, nameserver: str) -> None:
    block = read_blocks(README)[0]
    assert "Producer" in block.text and block.printed == ("b'one melon'",)
    assert run_block(installed, block, nameserver) == list(block.printed)
    said = installed.run("eruca", "tail", "fruit", "-n", nameserver).stdout
    assert "one melon" in said


def test_demo(installed: Installed) -> None:
    said = installed.run("eruca", "demo").stdout
    assert "my first message" in said and "Your turn: eruca up" in said


@pytest.mark.whole
def test_fixture(installed: Installed) -> None:
    installed.install("pytest", "pytest-asyncio")
    (installed.home / "test_fixture.py").write_text(FIXTURE_TEST)
    assert "2 passed" in installed.run("python", "-m", "pytest", "-q", "test_fixture.py").stdout


@pytest.mark.whole
def test_console(plain_wheel: Path, tmp_path: Path) -> None:
    """`eruca up` serves it: log in, choose a password, see a topic, with all that the pages load."""
    installed = make_installed(tmp_path / "console", name_wheel(plain_wheel, "console"))
    command = [str(installed.folder / "bin" / "eruca")]
    with (
        run_up(tmp_path / "data", command, installed.make_environment(), "--console-listen-port=0") as facts,
        httpx.Client(base_url=facts["console"], timeout=PATIENCE_S) as browser,
    ):
        installed.run("eruca", "send", "orders", "one melon", "-n", facts["nameserver"])
        reset = ("console", "--reset-password", "admin", "--option", f"consoleDirectory={tmp_path}/data/console")
        choose_password(browser, installed.run("eruca", *reset).stderr.split()[-1])
        page = browser.get("/c/default/topics")
        assert page.status_code == 200 and ">orders<" in page.text
        loaded = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text))
        assert {path: browser.get(path).status_code for path in loaded} == dict.fromkeys(loaded, 200)
        assert any(".css" in path for path in loaded) and any(".js" in path for path in loaded)
        assert [row["name"] for row in browser.get("/api/c/default/topics").json()["items"]] == ["orders"]


@pytest.mark.whole
@needs("jre")
def test_spark_in_three_lines(compiled_wheel: Path, tmp_path: Path) -> None:
    installed = make_installed(tmp_path / "spark", name_wheel(compiled_wheel, "spark"))
    three = next(block for block in find_programs(README) if "SparkSession" in block.text)
    with run_up(tmp_path / "data", [str(installed.folder / "bin" / "eruca")], installed.make_environment()) as facts:
        installed.run("eruca", "send", "orders", "melon {n}", "--count=7", "-n", facts["nameserver"])
        assert run_block(installed, three, facts["nameserver"]) == ["7"]


def find_programs(page: Path) -> list[Block]:
    """The fences without a language that are programs: not run with the page, because what they print depends."""
    fences = re.findall(r"^```\n(from .*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Block(0, text, endless=False, printed=()) for text in fences]


PYTHONS = list_supported()


@pytest.mark.whole
@pytest.mark.parametrize(
    "version", [pytest.param(version, marks=() if path else needs("containers")) for version, path in PYTHONS.items()]
)
def test_every_python(version: str, source: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Of those that are not on this machine Debian has some."""
    python = PYTHONS[version] or fetch_python(version)
    (tmp_path / "dist").mkdir()
    if python == sys.executable:
        wheel = request.getfixturevalue("compiled_wheel")
    else:
        wheel = build_compiled_wheel(source, tmp_path / "dist", python)
    assert find_faults(wheel, read_version()) == []
    installed = make_installed(tmp_path / "env", name_wheel(wheel), python=python)
    said = installed.run("eruca", "--version").stdout
    assert f"(Python {version}." in said and said.endswith(", compiled)\n")
    assert "Your turn" in installed.run("eruca", "demo").stdout
    note_figures(f"wheel for Python {version}: {wheel.name}")
