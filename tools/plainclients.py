"""Write the plain clients from the async ones: `python -m tools.plainclients [--check]`.

A plain client has the signatures and docstrings of its async twin, so they are written once, in the async class. For
each client this writes one module of `eruca._client.sync`, and for the admin and each of its parts one of
`eruca._admin.sync`. A generated method makes the same call of the twin, in the event loop of the plain clients, and
waits for the result.

Differences are written by hand, in the base class of the generated one. The generated method NAME calls a method
`_plain_NAME` of that class instead of the twin, if there is one; its return type, and its docstring if it has one,
replace those of the twin. An async iterator becomes an iterator. A method `_plain_NAME` for an argument NAME of the
constructor converts that argument. The docstring of the base class, without its first paragraph, is added to the
docstring of the client. A type that both modules know is taken from the base class's module.
"""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).resolve().parents[1] / "src"
SYNC: Final = "eruca._client.sync"
ADMIN: Final = "eruca._admin.sync"
_BY_HAND: Final = "_plain_"
# Async code in docstrings, and the same for plain code.
_PLAIN_WORDS: Final = (
    (re.compile(r"\basync (with|for|def)\b"), r"\1"),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\bfrom eruca import\b"), "from eruca.sync import"),
)
_ASYNC_ITERATOR: Final = "AsyncIterator["
# Every plain client has these from its base class.
_OF_BASE: Final = {"start", "close", "run", "options", "group"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Client:
    """A client: its async class, the module to write, and the base class with what is written by hand."""

    name: str
    source: str
    target: str
    base_module: str
    base: str
    package: str = SYNC
    # A part of a client has no constructor of its own; its base class takes the async class as a parameter.
    is_part: bool = False

    @property
    def path(self) -> Path:
        """The file to write."""
        return SOURCES / self.package.replace(".", "/") / f"{self.target}.py"


def _part(name: str, module: str) -> Client:
    target = module.rpartition(".")[2]
    return Client(name, f"eruca._admin.{module}", target, "base", "PlainPart", package=ADMIN, is_part=True)


CLIENTS: Final = (
    Client("Producer", "eruca._client.produce.producer", "producer", "producing", "PlainProducer"),
    Client(
        "TransactionalProducer",
        "eruca._client.produce.transactions",
        "transactions",
        "transacting",
        "PlainTransactionalProducer",
    ),
    Client("Consumer", "eruca._client.push.consumer", "consumer", "consuming", "PlainConsumer"),
    Client("PullConsumer", "eruca._client.pull.consumer", "pullconsumer", "pulling", "PlainPullConsumer"),
    Client("ScheduledPull", "eruca._client.pull.scheduledpull", "scheduledpull", "scheduling", "PlainScheduledPull"),
    Client("Admin", "eruca._admin.admin", "admin", "operating", "PlainAdmin", package=ADMIN),
    _part("Topics", "topics"),
    _part("Groups", "groups"),
    _part("Offsets", "offsets"),
    _part("Messages", "messages"),
    _part("DeadLetters", "deadletters"),
    _part("Transactions", "transactions"),
    _part("DelayedMessages", "delayed"),
    _part("Clients", "clients"),
    _part("Brokers", "brokers"),
    _part("Cluster", "cluster"),
    _part("NameServers", "nameservers"),
    _part("Accounts", "accounts"),
    _part("Routes", "routes"),
    _part("Doctor", "doctor.doctor"),
)


class Module:
    """One of our modules: where its names come from, and its classes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tree = ast.parse((SOURCES / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8"))
        self.imported = {
            alias.asname or alias.name: node.module
            for node in ast.walk(self._tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        self.modules = {
            alias.name for node in ast.walk(self._tree) if isinstance(node, ast.Import) for alias in node.names
        }
        self._defined = {node.name for node in self._tree.body if isinstance(node, ast.ClassDef)} | {
            target.id
            for node in self._tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def knows(self, name: str) -> bool:
        """Return whether this is the name of something in this module."""
        return name in self.imported or name in self.modules or name in self._defined

    def find_class(self, name: str) -> ast.ClassDef:
        """Return the class of this name."""
        return next(node for node in self._tree.body if isinstance(node, ast.ClassDef) and node.name == name)

    def write_import(self, name: str) -> str:
        """Return the line that imports a name as this module knows it."""
        if name in self.modules:
            return f"import {name}"
        return f"from {self.imported.get(name, self.name)} import {name}"


class Writer:
    """Writes one module."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._source = Module(client.source)
        self._base = Module(f"{client.package}.{client.base_module}")
        self._class = self._source.find_class(client.name)
        self._base_class = self._base.find_class(client.base)
        self._shared = Module(f"{SYNC}.base")
        bases = [*map(self._shared.find_class, ("PlainClient", "GroupClient", "RunningClient")), self._base_class]
        self._by_hand = {node.name: node for base in bases for node in _list_functions(base)}
        self._imports: set[str] = set()
        self._overloaded: set[str] = set()

    def write(self) -> str:
        """Return the source of the module, not yet formatted."""
        client = self._client
        inits = [] if client.is_part else [self._write_init()]
        methods = [*inits, *(self._write_method(node) for node in self._list_methods())]
        base = f"{client.base}[Async{client.name}]" if client.is_part else client.base + self._find_parameter()
        lines = [
            f'"""`{client.name}` of `eruca.sync.Admin`.' if client.is_part else f'"""`eruca.sync.{client.name}`.',
            "",
            f"Written by `make generate` from `{client.source}` and",
            f"`{client.package}.{client.base_module}`; do not edit.",
            '"""',
            "",
            "from __future__ import annotations",
            "",
            f"from {client.source} import {client.name} as Async{client.name}",
            f"from {client.package}.{client.base_module} import {client.base}",
            *sorted(self._imports),
            "",
            "",
            f"class {client.name}({base}):",
            _indent(_quote(self._describe_class())),
            "",
            *(f"{_indent(method)}\n" for method in methods),
        ]
        return "\n".join(lines)

    def _find_parameter(self) -> str:
        """Return the type parameter of the class in brackets; empty if it has none."""
        for base in self._class.bases:
            if isinstance(base, ast.Subscript) and isinstance(base.slice, ast.Name):
                self._note_names(base.slice)
                return f"[{base.slice.id}]"
        return ""

    def _describe_class(self) -> str:
        if self._client.is_part:
            return make_plain(ast.get_docstring(self._class) or "")
        _, _, more = (ast.get_docstring(self._base_class) or "").partition("\n\n")
        return "\n\n".join(part for part in (make_plain(ast.get_docstring(self._class) or ""), more) if part)

    def _list_methods(self) -> Iterator[Function]:
        for node in _list_functions(self._class):
            if not node.name.startswith("_") and node.name not in _OF_BASE:
                yield node

    # -- methods -----------------------------------------------------------------------------------------------------

    def _write_init(self) -> str:
        init = next(node for node in _list_functions(self._class) if node.name == "__init__")
        # The twin reads and checks its arguments in the caller's thread, so nothing has to be read beforehand.
        given = ", ".join(self._list_arguments(init, reads_ahead=False))
        return f"{self._write_head(init, init)}\n    super().__init__(Async{self._client.name}({given}))"

    def _write_method(self, node: Function) -> str:
        by_hand = self._by_hand.get(f"{_BY_HAND}{node.name}")
        decorators = {ast.unparse(each) for each in node.decorator_list}
        if "overload" in decorators:
            self._imports.add("from typing import overload")
            head = self._write_head(node, node)
            # The first overload is for a literal that the next one also accepts, as in the async class.
            if node.name not in self._overloaded:
                head = head.replace("(", "(  # type: ignore[overload-overlap]\n", 1)
            self._overloaded.add(node.name)
            return f"@overload\n{head} ..."
        doc = (by_hand and ast.get_docstring(by_hand)) or make_plain(ast.get_docstring(node) or "")
        if not doc:
            raise ValueError(f"{node.name} has no docstring")
        return "\n".join(
            [
                *(["@property"] if "property" in decorators else []),
                self._write_head(node, by_hand or node),
                _indent(_quote(doc)),
                _indent(self._write_body(node, decorators)),
            ]
        )

    def _write_head(self, node: Function, returning: Function) -> str:
        """Return the line with `def`: the arguments of one function, and the return type of it or of another."""
        self._note_names(node.args)
        returns = ""
        if returning.returns is not None:
            if _yields(returning):
                self._imports.add("from collections.abc import Iterator")
            self._note_names(returning.returns)
            returns = f" -> {ast.unparse(returning.returns).replace(_ASYNC_ITERATOR, 'Iterator[')}"
        return f"def {node.name}({ast.unparse(node.args)}){returns}:"

    def _note_names(self, annotated: ast.AST) -> None:
        for each in ast.walk(annotated):
            if isinstance(each, ast.Name) and not hasattr(builtins, each.id) and each.id != "AsyncIterator":
                if each.id == "Message":
                    module = self._shared
                else:
                    module = self._base if self._base.knows(each.id) else self._source
                self._imports.add(module.write_import(each.id))

    def _write_body(self, node: Function, decorators: set[str]) -> str:
        given = ", ".join(self._list_arguments(node))
        if f"{_BY_HAND}{node.name}" in self._by_hand:
            return f"return self.{_BY_HAND}{node.name}" + ("" if "property" in decorators else f"({given})")
        if decorators - {"property"}:
            raise ValueError(f"{node.name} has {decorators}: define {_BY_HAND}{node.name} for it")
        if "property" in decorators:
            return self._write_return(node, f"self._call(lambda: self._twin.{node.name})")
        work = f"self._twin.{node.name}({given})"
        if _yields(node):
            return f"return self._iterate({work})"
        if isinstance(node, ast.FunctionDef):
            return self._write_return(node, f"self._call(lambda: {work})")
        is_patient = "timeout" in {each.arg for each in [*node.args.args, *node.args.kwonlyargs]}
        return self._write_return(node, f"self._run({work}{', self._find_patience(timeout)' if is_patient else ''})")

    def _write_return(self, node: Function, call: str) -> str:
        returns = "None" if node.returns is None else ast.unparse(node.returns)
        match returns:
            case "None":
                return call
            case "Message":
                return f"return Message({call}, self)"
            case "list[Message]":
                return f"return [Message(message, self) for message in {call}]"
        if "Message" in re.findall(r"\w+", returns):
            raise ValueError(f"{node.name} returns {returns}: define {_BY_HAND}{node.name} for it")
        return f"return {call}"

    def _list_arguments(self, node: Function, *, reads_ahead: bool = True) -> list[str]:
        """Return the arguments of the call of the twin."""
        arguments = node.args
        given = [self._convert(each, reads_ahead) for each in arguments.args[1:]]
        given += [f"{each.arg}={self._convert(each, reads_ahead)}" for each in arguments.kwonlyargs]
        return given + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])

    def _convert(self, argument: ast.arg, reads_ahead: bool) -> str:
        name = argument.arg
        if f"{_BY_HAND}{name}" in self._by_hand:
            return f"self.{_BY_HAND}{name}({name})"
        annotation = "" if argument.annotation is None else ast.unparse(argument.annotation)
        if annotation == "Message":
            self._imports.add(f"from {SYNC}.base import find_twin")
            return f'find_twin("{name}", {name})'
        if reads_ahead and annotation.startswith("Iterable["):
            # It may be a generator that blocks, so it is read in the caller's thread and not in the loop.
            return f"{name} if {name} is None else list({name})" if annotation.endswith("| None") else f"list({name})"
        return name


def _yields(node: Function) -> bool:
    """Whether a method is an async iterator."""
    return node.returns is not None and ast.unparse(node.returns).startswith(_ASYNC_ITERATOR)


def make_plain(docstring: str) -> str:
    """Return a docstring for plain code."""
    for pattern, replacement in _PLAIN_WORDS:
        docstring = pattern.sub(replacement, docstring)
    return docstring


def _list_functions(class_node: ast.ClassDef) -> list[Function]:
    return [node for node in class_node.body if isinstance(node, Function)]


def _quote(docstring: str) -> str:
    return f'"""{docstring}{chr(10) if chr(10) in docstring else ""}"""'


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" if line.strip() else "" for line in text.split("\n"))


def format_source(source: str, path: Path) -> str:
    """Return the source as the linter formats it."""
    for command in ("check --fix --exit-zero", "format"):
        call = [sys.executable, "-m", "ruff", *command.split(), "--quiet", "--stdin-filename", str(path), "-"]
        source = subprocess.run(call, input=source, capture_output=True, text=True, check=True).stdout
    return source


def main() -> int:
    """Write the modules that changed; with `--check`, only list them and return 1 if there are any."""
    is_check = "--check" in sys.argv[1:]
    stale = []
    for client in CLIENTS:
        path = client.path
        source = format_source(Writer(client).write(), path)
        if not path.exists() or path.read_text(encoding="utf-8") != source:
            stale.append(path)
            if not is_check:
                path.write_text(source, encoding="utf-8")
    for path in stale:
        print(f"{path.relative_to(SOURCES.parent)}: {'out of date, run `make generate`' if is_check else 'written'}")
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
