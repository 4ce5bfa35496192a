"""What users import: every public name resolves and is described, and guides and examples import nothing else."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, get_args

import pytest

import eruca
import eruca.admin
import eruca.spark
from eruca._cli.namesdoc import describe, list_modules, write_page
from eruca._cli.pipeline import pipeline
from eruca._spark.sink.options import COLUMNS, SINK_OPTIONS
from eruca._spark.source.options import SOURCE_OPTIONS
from eruca._spark.store.datasource import OPTIONS as STORE_OPTIONS
from tests.paths import REPOSITORY

MODULES = list_modules()
GUIDES = [
    REPOSITORY / "README.md",
    REPOSITORY / "docs" / "zh" / "README.md",
    *sorted((REPOSITORY / "docs" / "guide").glob("*.md")),
    *sorted((REPOSITORY / "docs" / "zh" / "guide").glob("*.md")),
]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
MILLISECONDS = re.compile(r"_(ms|millis)(_|$)|milliseconds")
PRIVATE = re.compile(r"\beruca\._\w+")
# Blocks of a page are not always whole programs: sessions with `>>>`, or with prose between the lines.
IMPORT_LINE = re.compile(r"^\s*(?:>>> |\.\.\. )?((?:from\s+eruca|import\s+eruca)\b[^#\n]*?)\s*(?:#.*)?$", re.MULTILINE)
OPEN_IMPORT = re.compile(r"(from\s+eruca[\w.]*\s+import\s*)\(([^)]*)\)")


def list_documented() -> list[tuple[ModuleType, str]]:
    """Every public name with the module that lists it, those of exported modules included."""
    found: list[tuple[ModuleType, str]] = []

    def add(module: ModuleType) -> None:
        for name in module.__all__:
            found.append((module, name))
            if isinstance(value := getattr(module, name), ModuleType):
                add(value)

    for name in MODULES:
        add(importlib.import_module(name))
    return found


def list_defined(module: ModuleType) -> set[str]:
    """The names without an underscore that a module assigns or defines at its top; ruff finds imports nobody uses."""
    names: set[str] = set()
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not is_type_variable(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def is_type_variable(value: ast.expr | None) -> bool:
    """Whether a value is `TypeVar(...)`, which only annotations use."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "TypeVar"


def list_page_imports(text: str) -> Iterator[str]:
    """The imports of Eruca in a page or program, one line each."""
    joined = OPEN_IMPORT.sub(lambda match: match[1] + " ".join(match[2].split()).rstrip(","), text)
    yield from (match[1].rstrip(", ") for match in IMPORT_LINE.finditer(joined))


def find_private_import(line: str) -> str | None:
    """What an import statement takes that is not public; None when all of it is."""
    (statement,) = ast.parse(line).body
    if isinstance(statement, ast.Import):
        return next((alias.name for alias in statement.names if alias.name not in MODULES), None)
    assert isinstance(statement, ast.ImportFrom)
    if statement.module not in MODULES:
        return statement.module
    names = set(importlib.import_module(statement.module).__all__)
    for alias in statement.names:
        if alias.name not in names and f"{statement.module}.{alias.name}" not in MODULES:
            return f"{statement.module}.{alias.name}"
    return None


def find_private(text: str) -> list[str]:
    """The private names a page or program mentions, and its imports of what is not public."""
    imported = [found for line in list_page_imports(text) if (found := find_private_import(line))]
    return sorted({*PRIVATE.findall(text), *imported})


def test_the_public_modules_are_those_without_an_underscore() -> None:
    files = (REPOSITORY / "src" / "eruca").rglob("[a-z]*.py")
    relative = [path.relative_to(REPOSITORY / "src").with_suffix("") for path in files]
    public = [path for path in relative if not any(part.startswith("_") for part in path.parts)]
    packages = {".".join(path.parts[:-1]) for path in public}
    assert set(MODULES) == packages | {".".join(path.parts) for path in public}


@pytest.mark.parametrize("name", MODULES)
def test_a_public_module_lists_its_names(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    assert len(set(module.__all__)) == len(module.__all__)
    assert list_defined(module) - set(module.__all__) == set()


def test_every_public_name_resolves_and_is_described() -> None:
    names = list_documented()
    assert len(names) > 100
    assert [f"{module.__name__}.{name}" for module, name in names if not describe(module, name)] == []


def test_every_public_method_is_described() -> None:
    missing = []
    for module, name in list_documented():
        value = getattr(module, name)
        if not inspect.isclass(value):
            continue
        for attribute, member in vars(value).items():
            is_method = inspect.isroutine(member) or isinstance(member, property | classmethod | staticmethod)
            if is_method and not attribute.startswith("_") and not inspect.getdoc(getattr(value, attribute)):
                missing.append(f"{module.__name__}.{name}.{attribute}")
    assert missing == []


def list_words(value: Any) -> set[str]:
    """The parameters of a public function, or the parameters, fields and public attributes of a class."""
    words: set[str] = set()
    if inspect.isclass(value):
        words |= {name for name in dir(value) if not name.startswith("_")}
        words |= {name for kind in value.__mro__ for name in vars(kind).get("__annotations__", ())}
    for function in [
        value,
        *[getattr(value, name) for name in words if inspect.isclass(value) and hasattr(value, name)],
    ]:
        try:
            words |= set(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            continue  # not a function, or one without a signature
    return words


def test_no_public_time_is_in_milliseconds() -> None:
    """Durations are timedeltas or seconds, points in time are datetimes."""
    names = [(f"{module.__name__}.{name}", getattr(module, name)) for module, name in list_documented()]
    wrong = [f"{name}: {word}" for name, value in names for word in list_words(value) if MILLISECONDS.search(word)]
    assert wrong == []
    assert {"timeout", "send", "delay"} <= list_words(eruca.Producer) and "hold" in list_words(eruca.Flow)
    assert MILLISECONDS.search("first_ms") and not MILLISECONDS.search("items")


# What Spark's options and the columns of its sink are called. The tables of `eruca pipeline stats` have columns in
# milliseconds, such as latencyMs: the unit is in the name, as a column of a Parquet file has no type for durations.
MILLISECOND_OPTION = re.compile(r"(Ms|Millis|-ms|-millis)$")


def list_option_names() -> set[str]:
    """The names of all options that users write as text: of Spark's sources and sink, and of `eruca pipeline`."""
    tables = (SOURCE_OPTIONS, SINK_OPTIONS, STORE_OPTIONS)
    names = {option.name for table in tables for option in table.options} | set(COLUMNS)
    for command in pipeline.commands.values():
        names |= {text for parameter in command.params for text in (*parameter.opts, *parameter.secondary_opts)}
    return names


def test_no_option_is_in_milliseconds() -> None:
    names = list_option_names()
    assert {"delay", "delayLevel", "requestTimeout", "--late", "startingTimestamp"} <= names
    assert sorted(name for name in names if MILLISECOND_OPTION.search(name)) == []
    assert MILLISECOND_OPTION.search("delayMs") and MILLISECOND_OPTION.search("--late-ms")


# Types of which users only get objects: they need not write these names to use what the public functions return.
# Constructors of what only Eruca makes, and the fields of bodies that a broker sends, are not annotated for users.
_MADE_BY_ERUCA = re.compile(
    r"eruca\.(Message|Parcel|sync\.(Message|Parcel|PullContext)|admin\.[A-Z]\w*|metrics\.Family)\.(__init__|operation)"
)
_BODIES = {"ReplicationState"}
_NUMBERS = {"Int32", "Int64"}


def list_annotations(name: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    """Where a public name has an annotation, its text, and the module whose names it uses."""
    functions = {name: value} if inspect.isfunction(value) else {}
    if inspect.isclass(value):
        for kind in value.__mro__:
            if kind.__module__.startswith("eruca") and name.rpartition(".")[2] not in _BODIES:
                for field, annotation in vars(kind).get("__annotations__", {}).items():
                    if not field.startswith("_") and not _MADE_BY_ERUCA.fullmatch(f"{name}.{field}"):
                        yield f"{name}.{field}", str(annotation), sys.modules[kind.__module__]
        for key in [key for key in dir(value) if not key.startswith("_") or key == "__init__"]:
            member = inspect.getattr_static(value, key)
            member = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if inspect.isfunction(member):
                functions[f"{name}.{key}"] = member
    for where, function in functions.items():
        if function.__module__.startswith("eruca") and not _MADE_BY_ERUCA.fullmatch(where):
            for parameter, annotation in function.__annotations__.items():
                yield f"{where}({parameter})", str(annotation), sys.modules[function.__module__]


def find_private_types(name: str, value: Any, public: set[str]) -> Iterator[str]:
    """The types of Eruca in the annotations of a public name that are not public themselves."""
    for where, annotation, module in list_annotations(name, value):
        for word in re.findall(r"[A-Za-z_]\w*", re.sub(r"[\"'].*?[\"']", "", annotation)):
            found = getattr(module, word, None)
            is_ours = str(getattr(found, "__module__", "")).startswith("eruca") or is_alias(module, word)
            if is_ours and word not in public and word not in _NUMBERS and not isinstance(found, TypeVar):
                yield f"{where}: {word}"


def is_alias(module: ModuleType, word: str) -> bool:
    """Whether a name is an alias, such as a union of types."""
    return bool(get_args(getattr(module, word, None)))


def test_every_type_in_a_public_annotation_is_public() -> None:
    names = [(module, name) for module, name in list_documented() if module.__name__ not in _CALLED_BY_OTHERS]
    public = {name for _, name in names}
    wrong = [
        found
        for module, name in names
        for found in find_private_types(f"{module.__name__}.{name}", getattr(module, name), public)
    ]
    assert wrong == []
    found = set(find_private_types("eruca.Producer", eruca.Producer, public - {"Duration", "SendHook", "Receipt"}))
    assert {"eruca.Producer.__init__(timeout): Duration", "eruca.Producer.__init__(hooks): SendHook"} <= found
    assert "eruca.Producer.send(return): Receipt" in found


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("Access", "access_file nameserver retries timeout tls"),
        ("MessageInput", "access archive pattern since stores topics until"),
        ("SchemaRegistry", "login_file place retries timeout tls"),
        (
            "JobSummary",
            "as_dict bad bad_records bytes facts first job last outputs rows seconds warnings write",
        ),
    ],
)
def test_what_spark_shows_is_what_users_use(name: str, attributes: str) -> None:
    kind = getattr(eruca.spark, name)
    shown = {each for each in dir(kind) if not each.startswith("_")} | set(kind.__annotations__) - {"_"}
    assert " ".join(sorted(shown)) == attributes
    assert list(inspect.signature(eruca.spark.run_rebuild).parameters)[2:] == ["out", "properties", "drop_old"]


def test_the_admin_is_a_name_of_the_package() -> None:
    assert eruca.Admin is eruca.admin.Admin and "Admin" in eruca.__all__


# What may really be anything: bodies, whose type a serializer decides, types to decode to, and options of a broker or
# consumer that are passed on.
_OF_ANY_TYPE = {"body", "type", "**options", "**consumer_options"}
# kombu, which has no types, calls these.
_CALLED_BY_OTHERS = {"eruca.integrations.kombu"}


def list_untyped(name: str, value: Any) -> Iterator[str]:
    """The parameters of a public function, or of the methods of a class, that no checker can check."""
    functions = {name: value}
    if inspect.isclass(value):
        methods = [key for key in dir(value) if not key.startswith("_") or key == "__init__"]
        functions = {f"{name}.{key}": getattr(value, key) for key in methods}
    for where, function in functions.items():
        if not inspect.isroutine(function) or not str(getattr(function, "__module__", "")).startswith("eruca"):
            continue
        for parameter in inspect.signature(function).parameters.values():
            label = str(parameter).partition(":")[0]
            if label != "self" and label not in _OF_ANY_TYPE and parameter.annotation in ("Any", parameter.empty):
                yield f"{where}({label})"


def test_the_arguments_of_public_functions_are_typed() -> None:
    names = [
        (f"{module.__name__}.{name}", getattr(module, name))
        for module, name in list_documented()
        if module.__name__ not in _CALLED_BY_OTHERS
    ]
    assert [found for name, value in names for found in list_untyped(name, value)] == []

    def loose(a: Any, b, *, c: int, **d) -> None: ...  # type: ignore[no-untyped-def]

    loose.__module__ = "eruca.loose"
    assert list(list_untyped("loose", loose)) == ["loose(a)", "loose(b)", "loose(**d)"]


@pytest.mark.parametrize("path", [*GUIDES, *EXAMPLES], ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_guides_and_examples_use_public_names_only(path: Path) -> None:
    assert find_private(path.read_text(encoding="utf-8")) == []


def test_private_names_are_found() -> None:
    text = "```python\nfrom eruca import Producer, Prodcuer\n>>> import eruca._wire  # why\n```\n"
    assert find_private(text) == ["eruca.Prodcuer", "eruca._wire"]
    assert find_private("from eruca.errors import (\n    ErucaError,\n    BAD,\n)\n") == ["eruca.errors.BAD"]
    assert find_private("from eruca import errors\nimport eruca.sync\nfrom eruca.sync import (  Producer, )\n") == []
    assert find_private("eruca._store holds it") == ["eruca._store"]


def test_the_page_of_names_is_current() -> None:
    page = REPOSITORY / "docs" / "API_NAMES.md"
    assert page.read_text(encoding="utf-8") == write_page(), "run `make generate`"
