"""Style is a test: it says every time what a reviewer would say twice.

A rule is a function from one source file to its findings. Every rule is shown a file it must refuse and one it must
accept (`SAMPLES`), because a rule that finds nothing anywhere proves nothing.
"""

from __future__ import annotations

import ast
import gc
import mmap
import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest
from blockbuster import BlockingError

from tests.paths import REPOSITORY

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 80
WAIT_SECONDS_MAX = 0.1
TEXT_SUFFIXES = {"", ".cfg", ".conf", ".in", ".java", ".js", ".json", ".md", ".py", ".pyi", ".sh", ".toml", ".txt"}
TEXT_SUFFIXES |= {".css", ".html", ".lark", ".properties", ".pxd", ".typed", ".xml", ".yaml", ".yml"}
SKIPPED_FOLDERS = {".git", ".venv", "build", "dist", "node_modules", "__pycache__"}

REMINDER = re.compile(r"\b(T[O]DO|F[I]XME|X[X]X)\b")
VAGUE_WORDS = {"manager", "managers", "helper", "helpers", "util", "utils", "impl"}
CAMEL_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z0-9]+")
MACHINE_PATH = re.compile(r"(?<![\w.~$}])/(home|Users)/\w|(?<![\w.~$}])/(root|work)/\w|[A-Z]:\\Users\\")
REGISTRY_HOST = re.compile(
    r"pypi\.(org|python\.org)|pythonhosted\.org|repo1?\.maven\.|maven\.apache\.org/maven2|npmjs\.(org|com)"
    r"|registry\.yarnpkg|proxy\.golang\.org|\bcrates\.io|conda\.anaconda\.org|index[-_]url\s*=|--index-url\s+\S"
)
SERVER_IN_TEST = re.compile(
    r"(?<!_admin.nameservers) import .*\b(EmbeddedBroker|FilterServer|NameServer)\b"
    r"|from eruca\._(broker|nameserver|filterserver)\.app\b"
    r"|tests\.integration"
)
OUTSIDE = re.compile(r"\.\./s[h]ared\b|ERUCA_S[H]ARED")
MARKDOWN_LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)([^)#\s]+)[^)]*\)")
# Sentences that stopped readers once. They come back by imitation, so each is refused where a reader would meet it.
# To add one: a regular expression in lower case. A blank in it also matches the end of a line, of a comment's line and
# of a literal that the next line continues.
AWKWARD = (
    r"topics? makes? itself\b",
    r"consumers gave up(?! on)\b",
    r"\bgo over them\b",
    r"listens where other machines",
    r"send each body so often",
    r"say the same: give one",
    r"goes before the other two",
    r"the longer the more often",
    r"nobody says where",
    r"\bsaid a word\b",
    r"nobody is here",
    r"for who sends much",
    r"is no position\b",
    r"\beach goes over\b",
    r"a flag goes over",
    r"run java's `?mqadmin",
    r"\bin earnest\b",
    r"\bwhat all would be\b",
    r"\banother thing than was meant\b",
    r"\bbegin so\b",
    r"\basked about so often\b",
    r"\bgoes before the others\b",
    r"\bgoes over this change\b",
    r"\bat most so many\b",
    r"what is not there is named",
    r"no name server is named",
    r"\bhas to say what that is\b",
    r"\bit will notice by itself\b",
    r"\bhow it came to that\b",
    r"\bleft to its fate\b",
    r"\bend what they began\b",
    r"\bcould be asked: ",
    r"\bone a process\b",
    r"\bone session a process\b",
    r"\bas it came: nothing of it\b",
    r"\bdecodes and checks them himself\b",
    r"\bfigure that has taken\b",
    r"\bmakes itself with\b",
    r"\b(will|messages) come again\b",
    r"\bgo(es|ing)? on (at|where|trying)\b",
    r"\bas an operator wished\b",
    r"\bone (handler|callback) a topic\b",
    r"\ba meaning of its own\b",
    r"\bbe given (back|to its handler)\b",
    r"\b(position|offset|bytes) behind (the|it)\b",
    r"\bis behind the end of the log \(",
    r"\bone behind the other\b",
    r"\bcome in vain\b",
    r"\bso many\b",
    r"\bbegins so\b",
    r"(?<!there\s)\b(is|are) no (reason|secret|record|number|admin)s?\b",
    r"\bgives the (result|count|answer)s?\b",
    r"\bit says of itself\b",
    r"\bin (a process of its own|processes of their own)\b",
    r"\bin a thread of (its|their) own\b",
    r"\bby themselves\b",
    r"\bthe longer the more\b",
    r"\bwhere other machines reach\b",
    r"\bfor so long\b",
    r"\bagain and again\b",
    r"\bgo(es)? on\b(?! to\b)",
    r"\ba time of (its|their) own\b",
    r"\b(commits|ends|stops|starts|creates) by itself\b",
    r"\b(it|this|that|which|none|0) is no (?!longer\b|more\b)",
    r"\bis for the caller to\b",
    r"\blogs? says? so\b",
    r"\b(have a queue|call) no more\b",
    r"\bfor who only\b",
    r"\bwhat heartbeats say\b",
    r"\blook again which\b",
    r"\bthe way of a message\b",
    r"\bnobody (tells|says|asks)\b",
    r"\b(tells?|says?|speaks?) of\b",
)
GAP = r"""(?:\s|"\s*\n\s*f?"|\n\s*\#)+"""
AWKWARD_PHRASE = re.compile("|".join(AWKWARD).replace(" ", GAP))
# Tests have their own idiom, which is being replaced phrase by phrase: these are gone.
AWKWARD_IN_TESTS = re.compile(
    r"\bso many\b|\bbegins so\b|\bgives the (result|count|answer)s?\b|\bagain and again\b|\bhow it came to that\b"
    r"|(?<!there\s)\b(is|are) no (reason|secret|record|number|admin)s?\b".replace(" ", GAP)
)
PROSE_SUFFIXES = (".py", ".pxd", ".js", ".css", ".html", ".java", ".json")
DOTTED_MODULE = re.compile(r"(eruca|pyspark_rocketmq)(\.\w+)*(:\w+)?")


@dataclass(frozen=True)
class SourceFile:
    """One file of the repository: where it is and what it says."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    def is_in(self, *folders: str) -> bool:
        return self.is_python and self.path.startswith(folders)

    @property
    def module(self) -> str:
        """The dotted name of a module under src."""
        return self.path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


Finding = tuple[int, str]
Rule = Callable[[SourceFile], Iterator[Finding]]


# --- the files ----------------------------------------------------------------------------------------------------


def list_paths() -> list[str]:
    """Every file that is or would be committed; a plain walk where there is no git (an unpacked archive)."""
    try:
        command = ["git", "-C", str(REPOSITORY), "ls-files", "-z", "-co", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        listed = list(walk_paths(REPOSITORY))
    return sorted(path for path in listed if path and (REPOSITORY / path).is_file())


def walk_paths(root: Path) -> Iterator[str]:
    """The files under a folder, without what tools leave behind."""
    for folder, names, files in os.walk(root):
        names[:] = [n for n in names if n not in SKIPPED_FOLDERS and not n.endswith(("_cache", ".egg-info"))]
        for file in files:
            yield (Path(folder) / file).relative_to(root).as_posix()


@cache
def read_sources() -> tuple[SourceFile, ...]:
    """All text files of the repository, without those of others, which stay as they were published."""
    paths = (path for path in list_paths() if Path(path).suffix in TEXT_SUFFIXES and not path.endswith(".min.js"))
    return tuple(SourceFile(path, (REPOSITORY / path).read_text(encoding="utf-8")) for path in paths)


def call_name(node: ast.AST) -> str:
    """The dotted name of what is called, `pytest.raises` for example, or an empty string."""
    if isinstance(node, ast.Call):
        return call_name(node.func)
    if isinstance(node, ast.Attribute):
        return f"{call_name(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def iterate_functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method, nested ones included."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


# --- rules for any text -------------------------------------------------------------------------------------------


def find_trailing_whitespace(file: SourceFile) -> Iterator[Finding]:
    """Blanks at the end of a line, or no newline at the end of the file."""
    for number, line in enumerate(file.text.split("\n"), 1):
        if line != line.rstrip():
            yield number, "trailing whitespace"
    if file.text and not file.text.endswith("\n"):
        yield file.text.count("\n") + 1, "no newline at the end"


def find_reminders(file: SourceFile) -> Iterator[Finding]:
    """Work that was left for later belongs in an issue."""
    for number, line in enumerate(file.text.splitlines(), 1):
        if match := REMINDER.search(line):
            yield number, f"left-over reminder {match[0]}"


def find_machine_paths(file: SourceFile) -> Iterator[Finding]:
    """A path that exists on one machine only, or the name of a package registry."""
    for number, line in enumerate(file.text.splitlines(), 1):
        if match := MACHINE_PATH.search(line) or REGISTRY_HOST.search(line):
            yield number, f"names a machine path or a registry: {match[0]}"


def find_outside_data(file: SourceFile) -> Iterator[Finding]:
    """Data that a clone does not have: what the tests and benchmarks read is in the repository."""
    for number, line in enumerate(file.text.splitlines(), 1):
        if match := OUTSIDE.search(line):
            yield number, f"names data outside the repository: {match[0]}"


def find_broken_links(file: SourceFile) -> Iterator[Finding]:
    """A relative link in a document that leads nowhere."""
    if not file.path.endswith(".md"):
        return
    for number, line in enumerate(file.text.splitlines(), 1):
        for target in MARKDOWN_LINK.findall(line):
            if not ((REPOSITORY / file.path).parent / target).exists():
                yield number, f"link leads nowhere: {target}"


def is_prose(path: str) -> bool:
    """Whether people read this file as English text, comments included."""
    if path.startswith(("docs/zh/", "src/eruca/_console/locale/zh")) or path in {"tests/test_tidy.py", "docs/STYLE.md"}:
        return False
    if path.endswith(".md"):
        return path.startswith("docs/") or "/" not in path
    return path.startswith(("src/", "bench/", "tools/", "tests/", "examples/")) and path.endswith(PROSE_SUFFIXES)


def find_awkward_phrases(file: SourceFile) -> Iterator[Finding]:
    """A phrase that is not English, in the product or in its documentation."""
    if not is_prose(file.path):
        return
    awkward = AWKWARD_IN_TESTS if file.path.startswith("tests/") else AWKWARD_PHRASE
    for match in awkward.finditer(file.text.lower()):
        yield file.text.count("\n", 0, match.start()) + 1, f"awkward: {' '.join(match[0].split())}"


# --- rules for Python ---------------------------------------------------------------------------------------------


def find_long_modules(file: SourceFile) -> Iterator[Finding]:
    """A module this long is two."""
    lines = file.text.count("\n")
    if file.is_in("src/") and lines > MODULE_LINES_MAX:
        yield 1, f"{lines} lines, more than {MODULE_LINES_MAX}"


def find_long_functions(file: SourceFile) -> Iterator[Finding]:
    """A function this long does several things."""
    if not file.is_in("src/", "tests/", "bench/", "examples/"):
        return
    for function in iterate_functions(file.tree):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            yield function.lineno, f"{function.name} has {lines} lines, more than {FUNCTION_LINES_MAX}"


def find_vague_names(file: SourceFile) -> Iterator[Finding]:
    """Names that do not say what the thing does."""
    if not file.is_python:
        return
    for word in re.split(r"[/_.]", file.path.removesuffix(".py")):
        if word in VAGUE_WORDS:
            yield 1, f"module name says nothing: {word}"
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ClassDef) and VAGUE_WORDS & {w.lower() for w in CAMEL_WORD.findall(node.name)}:
            yield node.lineno, f"class name says nothing: {node.name}"


def find_missing_docstrings(file: SourceFile) -> Iterator[Finding]:
    """A public module that does not say what it is."""
    name = Path(file.path).name
    public = name == "__init__.py" or not name.startswith("_")
    if file.is_in("src/", "bench/") and public and not ast.get_docstring(file.tree):
        yield 1, "no docstring"


def find_prints(file: SourceFile) -> Iterator[Finding]:
    """Only the command line talks to the terminal."""
    if not file.is_in("src/") or file.path.startswith("src/eruca/_cli/"):
        return
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call) and call_name(node) == "print":
            yield node.lineno, "print() outside cli"


def find_dangerous_calls(file: SourceFile) -> Iterator[Finding]:
    """Ways for data to become code."""
    if not file.is_in("src/"):
        return
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if {"pickle", "marshal", "shelve"} & {name.partition(".")[0] for name in names}:
                yield node.lineno, "imports a format that runs code"
        elif isinstance(node, ast.Call):
            if call_name(node) in {"eval", "exec", "os.system", "os.popen"}:
                yield node.lineno, f"calls {call_name(node)}"
            if any(k.arg == "shell" and not is_constant(k.value, False) for k in node.keywords):
                yield node.lineno, "runs a shell"


def is_constant(node: ast.AST, value: object) -> bool:
    """Whether an expression is this literal."""
    return isinstance(node, ast.Constant) and node.value is value


def is_kernel(path: str) -> bool:
    """Whether a file lies in a folder of kernels."""
    return path.split("/")[-2:-1] == ["kernel"]


def find_compiled_branches(file: SourceFile) -> Iterator[Finding]:
    """Only a kernel may ask whether it is compiled: all others get the same answers either way."""
    if not file.is_in("src/") or is_kernel(file.path):
        return
    asked: list[ast.expr] = []
    for node in ast.walk(file.tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            asked.append(node.test)
        elif isinstance(node, ast.BoolOp):
            asked.append(node)
    for test in asked:
        # `compiled.size` asks for a size.
        owners = {id(part.value) for part in ast.walk(test) if isinstance(part, ast.Attribute)}
        if any(last_name(part).lower() == "compiled" for part in ast.walk(test) if id(part) not in owners):
            yield test.lineno, "asks whether a kernel is compiled"


def last_name(node: ast.AST) -> str:
    """The last word of a name: `compiled` of `kernel.compiled`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def find_kernels_elsewhere(file: SourceFile) -> Iterator[Finding]:
    """What is compiled lies in the folder `kernel` of the room whose work it does."""
    if not file.path.startswith("src/") or is_kernel(file.path):
        return
    if file.path.endswith((".pxd", ".pyx")):
        yield 1, "is for the compiler and not in a folder `kernel`"
    elif file.is_python:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
                if any(name.split(".")[0] == "cython" or name.split(".")[-1] == "nocython" for name in names):
                    yield node.lineno, "imports cython and is not in a folder `kernel`"


# --- rules for tests ----------------------------------------------------------------------------------------------


def find_sleeps(file: SourceFile) -> Iterator[Finding]:
    """A test that sleeps is slow on a fast machine and wrong on a slow one."""
    if not file.is_in("tests/"):
        return
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Attribute) and call_name(node) == "time.sleep":
            yield node.lineno, "time.sleep in a test"
        if isinstance(node, ast.ImportFrom) and node.module == "time" and "sleep" in {a.name for a in node.names}:
            yield node.lineno, "time.sleep in a test"


def find_long_waits(file: SourceFile) -> Iterator[Finding]:
    """A test that waits for a fixed time outside of a loop waits for no condition, and says why beside it.

    The long runs of tests/torture pace their load by time.
    """
    if not file.is_in("tests/") or file.is_in("tests/torture/"):
        return
    loops = [node for node in ast.walk(file.tree) if isinstance(node, ast.While | ast.For | ast.AsyncFor)]
    polling = {id(inner) for loop in loops for inner in ast.walk(loop)}
    lines = file.text.splitlines()
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.Call) or call_name(node) != "asyncio.sleep" or id(node) in polling:
            continue
        given = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else 0
        if isinstance(given, int | float) and given >= WAIT_SECONDS_MAX and "  # " not in lines[node.lineno - 1]:
            yield node.lineno, f"asyncio.sleep({given}) without a reason beside it"


def find_tests_without_assertion(file: SourceFile) -> Iterator[Finding]:
    """A test that cannot fail. What it calls to assert starts with assert, check or expect."""
    if not file.is_in("tests/") or not Path(file.path).name.startswith("test_"):
        return
    for function in iterate_functions(file.tree):
        if function.name.startswith("test_") and not any(is_assertion(node) for node in ast.walk(function)):
            yield function.lineno, f"{function.name} asserts nothing"


def is_assertion(node: ast.AST) -> bool:
    """Whether a statement or call can fail a test on purpose."""
    if isinstance(node, ast.Assert):
        return True
    name = call_name(node) if isinstance(node, ast.Call) else ""
    last = name.rpartition(".")[2].lstrip("_")
    return name in {"pytest.raises", "pytest.warns", "pytest.fail"} or last.startswith(("assert", "check", "expect"))


def find_servers_in_unit_tests(file: SourceFile) -> Iterator[Finding]:
    """Unit tests start no broker, name server or filter server, and lie where the room they test does."""
    folder = re.match(r"tests/unit/(\w+)/", file.path)
    if folder is None:
        return
    if not (REPOSITORY / "src" / "eruca" / f"_{folder[1]}").is_dir():
        yield 1, f"there is no room src/eruca/_{folder[1]}"
    for number, line in enumerate(file.text.splitlines(), 1):
        if SERVER_IN_TEST.search(line):
            yield number, "a test that starts a server belongs in tests/integration"


def find_skips_without_reason(file: SourceFile) -> Iterator[Finding]:
    """A test left out without a word."""
    if not file.is_in("tests/"):
        return
    skipping = {"pytest.skip", "pytest.xfail", "pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail"}
    called = {id(node.func) for node in ast.walk(file.tree) if isinstance(node, ast.Call)}
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.Call | ast.Attribute) or call_name(node) not in skipping or id(node) in called:
            continue
        if isinstance(node, ast.Attribute) or not has_reason(node):
            yield node.lineno, f"{call_name(node)} without a reason"


def has_reason(call: ast.Call) -> bool:
    """Whether a skip says why: `reason=`, or the first argument where that is the reason."""
    given = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
    if call_name(call) in {"pytest.skip", "pytest.xfail", "pytest.mark.skip"}:
        given += call.args[:1]
    return any(not is_empty_text(value) for value in given)


def is_empty_text(node: ast.AST) -> bool:
    """Whether an expression is a literal that says nothing."""
    return isinstance(node, ast.Constant) and not str(node.value or "").strip()


# --- dead files ---------------------------------------------------------------------------------------------------


def find_dead_modules(files: Iterable[SourceFile], entry_points: set[str]) -> list[str]:
    """Modules under src that nothing imports: not the product, not a test, not an entry point."""
    python = [file for file in files if file.is_python]
    reached = set(entry_points)
    for file in python:
        reached |= {name for name in list_imports(file) if name != file.module}
    return sorted(
        file.path
        for file in python
        if file.is_in("src/") and Path(file.path).name not in {"__init__.py", "__main__.py"}
        if file.module not in reached
    )


def list_imports(file: SourceFile) -> Iterator[str]:
    """Every dotted name a file may import, lazily loaded ones ("eruca._cli.store:store") included."""
    package = file.module.split(".") if file.path.endswith("__init__.py") else file.module.split(".")[:-1]
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED_MODULE.fullmatch(node.value):
            yield node.value.partition(":")[0]


def read_entry_points() -> set[str]:
    """The modules that users name: those that pyproject.toml has as commands or plugins, and the public ones."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project.get("scripts", {}), *project.get("entry-points", {}).values()]
    public = {f"eruca.{path.stem}" for path in (REPOSITORY / "src/eruca").glob("[a-z]*.py")}
    return public | {target.partition(":")[0] for group in groups for target in group.values()}


# --- the tests ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def collect_no_garbage() -> Iterator[None]:
    """Syntax trees are millions of objects without a cycle: looking for cycles among them takes longer than all else.

    They are let go in the end, so that the tests after these do not pay for them either.
    """
    gc.disable()
    yield
    read_sources.cache_clear()
    gc.enable()


def join(*parts: str) -> str:
    """A word the rules refuse, written so that they do not find it in this file."""
    return "".join(parts)


# For each rule: a file it must refuse, and one it must accept.
SAMPLES: dict[Rule, tuple[SourceFile, SourceFile]] = {
    find_trailing_whitespace: (SourceFile("a.md", "a \n"), SourceFile("a.md", "a\n")),
    find_reminders: (
        SourceFile("a.md", join("FIX", "ME later\n")),
        SourceFile("a.md", "SCHEDULE_TOPIC_XXXX, \\uXXXX\n"),
    ),
    find_machine_paths: (
        SourceFile("a.md", join("/", "home/me/x\n")),
        SourceFile("a.md", "$HOME/x, ./home/x, /dev/null\n"),
    ),
    find_outside_data: (
        SourceFile("Makefile", join("GOLDEN := ../sha", "red/golden\n")),
        SourceFile("a.md", "/shared/archive, ../tests/golden/data\n"),
    ),
    find_broken_links: (SourceFile("a.md", "[x](no/such.md)\n"), SourceFile("docs/a.md", "[x](../README.md#top)\n")),
    find_awkward_phrases: (
        SourceFile("docs/a.md", "Variables go\nover them.\n"),
        SourceFile("docs/a.md", "Messages that consumers gave up on. Variables override them.\n"),
    ),
    find_long_modules: (SourceFile("src/a.py", "\n" * 501), SourceFile("src/a.py", "\n" * 500)),
    find_long_functions: (
        SourceFile("src/a.py", "def f():\n" + "    x\n" * 80),
        SourceFile("src/a.py", "def f():\n" + "    x\n" * 79),
    ),
    find_vague_names: (SourceFile("src/a.py", "class TopicManager: ..."), SourceFile("src/a.py", "class Simple: ...")),
    find_missing_docstrings: (SourceFile("src/a.py", "x = 1"), SourceFile("src/a.py", '"""What it is."""')),
    find_prints: (SourceFile("src/eruca/a.py", "print(1)"), SourceFile("src/eruca/_cli/a.py", "print(1)")),
    find_dangerous_calls: (SourceFile("src/a.py", "f(shell=True)"), SourceFile("src/a.py", "re.compile('a')")),
    find_compiled_branches: (
        SourceFile("src/eruca/_store/a.py", "if x and kernel.compiled: f()"),
        SourceFile("src/eruca/_store/a.py", "if compiled.imports: f(kernel.compiled)"),
    ),
    find_kernels_elsewhere: (
        SourceFile("src/eruca/_wire/a.py", "import cython"),
        SourceFile("src/eruca/_wire/kernel/a.py", "import cython"),
    ),
    find_sleeps: (SourceFile("tests/a.py", "time.sleep(1)"), SourceFile("tests/a.py", "clock.sleep(1)")),
    find_long_waits: (
        SourceFile("tests/a.py", "async def f():\n    await asyncio.sleep(0.1)\n"),
        SourceFile(
            "tests/a.py",
            "async def f():\n    await asyncio.sleep(3)  # why\n    while g():\n        await asyncio.sleep(1)\n",
        ),
    ),
    find_tests_without_assertion: (
        SourceFile("tests/test_a.py", "def test_a(): f()"),
        SourceFile("tests/test_a.py", "def test_a(): assert_equal(f())"),
    ),
    find_servers_in_unit_tests: (
        SourceFile("tests/unit/broker/test_a.py", "from eruca._broker.app import Broker\n"),
        SourceFile("tests/integration/test_a.py", "from eruca._broker.app import Broker\n"),
    ),
    find_skips_without_reason: (
        SourceFile("tests/a.py", "pytest.skip()"),
        SourceFile("tests/a.py", "pytest.skip('no Java here')"),
    ),
}
MORE_BAD: list[tuple[Rule, SourceFile]] = [
    (find_machine_paths, SourceFile("a.txt", join("--index", "-url x\n"))),
    (find_machine_paths, SourceFile("a.txt", join("see py", "pi.org\n"))),
    (find_outside_data, SourceFile("a.py", join("os.environ['ERUCA_SHA", "RED']\n"))),
    (find_awkward_phrases, SourceFile("tests/a.py", '"""Do it; gives the result."""\n')),
    (find_awkward_phrases, SourceFile("bench/a.py", "# At most so\n# many rows.\n")),
    (find_awkward_phrases, SourceFile("src/eruca/_console/locale/en/a.json", '{"a": "before you go on."}')),
    (find_awkward_phrases, SourceFile("docs/from/a.md", "This is no number.\n")),
    (find_awkward_phrases, SourceFile("src/eruca/_console/static/a.css", "/* where it goes on. */")),
    (find_awkward_phrases, SourceFile("src/a.py", 'x = (\n    "Nobody is"\n    f" here"\n)\n')),
    (find_awkward_phrases, SourceFile("src/a.py", "# It listens\n# where other machines are.\n")),
    (find_vague_names, SourceFile("src/eruca/string_utils.py", "")),
    (find_dangerous_calls, SourceFile("src/a.py", "import pickle")),
    (find_dangerous_calls, SourceFile("src/a.py", "eval(x)")),
    (find_dangerous_calls, SourceFile("src/a.py", "exec(x)")),
    (find_compiled_branches, SourceFile("src/eruca/a.py", "f = a.f if a.compiled else g")),
    (find_compiled_branches, SourceFile("src/eruca/a.py", "done = COMPILED and f()")),
    (find_kernels_elsewhere, SourceFile("src/eruca/_wire/a.pxd", "")),
    (find_kernels_elsewhere, SourceFile("src/eruca/a.py", "from eruca._wire.kernel import nocython as cython")),
    (find_sleeps, SourceFile("tests/a.py", "from time import sleep")),
    (
        find_servers_in_unit_tests,
        SourceFile("tests/unit/broker/test_a.py", "from eruca.testing import EmbeddedBroker\n"),
    ),
    (find_servers_in_unit_tests, SourceFile("tests/unit/nowhere/test_a.py", "")),
    (find_skips_without_reason, SourceFile("tests/a.py", "@pytest.mark.skip\ndef test_a(): ...")),
    (find_skips_without_reason, SourceFile("tests/a.py", "@pytest.mark.skipif(x)\ndef test_a(): ...")),
]


@pytest.mark.parametrize("rule", SAMPLES, ids=lambda rule: rule.__name__)
def test_repository_is_tidy(rule: Rule) -> None:
    findings = [f"{file.path}:{line}: {what}" for file in read_sources() for line, what in rule(file)]
    assert not findings, "\n" + "\n".join(findings)


def test_no_dead_modules() -> None:
    assert find_dead_modules(read_sources(), read_entry_points()) == []


@pytest.mark.parametrize("rule", SAMPLES, ids=lambda rule: rule.__name__)
def test_rule_tells_bad_from_good(rule: Rule) -> None:
    bad, good = SAMPLES[rule]
    assert list(rule(bad))
    assert not list(rule(good))


@pytest.mark.parametrize(("rule", "bad"), MORE_BAD, ids=lambda value: getattr(value, "__name__", ""))
def test_rule_refuses(rule: Rule, bad: SourceFile) -> None:
    assert list(rule(bad))


def test_dead_module_is_found() -> None:
    used = SourceFile("src/eruca/_wire/used.py", "")
    lazy = SourceFile("src/eruca/_cli/lazy.py", "")
    dead = SourceFile("src/eruca/_wire/dead.py", "from eruca._wire import dead")
    user = SourceFile("src/eruca/_wire/__init__.py", "from .used import x\nNAMES = ['eruca._cli.lazy:main']")
    assert find_dead_modules([used, lazy, dead, user], set()) == [dead.path]
    assert find_dead_modules([dead], {"eruca._wire.dead"}) == []


def test_files_are_listed_with_and_without_git() -> None:
    assert "tests/test_tidy.py" in list_paths()
    assert "tests/test_tidy.py" in set(walk_paths(REPOSITORY))


async def test_blocking_call_in_the_loop_fails(tmp_path: Path) -> None:
    with pytest.raises(BlockingError):
        os.listdir(tmp_path)
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(descriptor, mmap.PAGESIZE)
        with pytest.raises(BlockingError):
            os.fsync(descriptor)
        with mmap.mmap(descriptor, mmap.PAGESIZE) as mapped, pytest.raises(BlockingError):
            mapped.flush()
    finally:
        os.close(descriptor)


def test_blocking_call_outside_a_loop_passes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert os.listdir(tmp_path) == ["file"]
