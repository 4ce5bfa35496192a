"""The names of the fault disk, and the journal that orders their changes, as on ext4 and xfs.

A power loss keeps a prefix of the uncommitted entries: some of the newest may be lost, but never one without all
entries after it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TypeAlias

from eruca._testing.faults.image import CrashMode, FileImage

ROOT = "/"


@dataclass(slots=True)
class Directory:
    """A directory; the names in it are the paths of the tree that start with its own path."""

    modified_ms: int


Node: TypeAlias = FileImage | Directory
Tree: TypeAlias = dict[str, Node]


@dataclass(frozen=True, slots=True)
class Link:
    """A name is created, replacing a file of that name."""

    path: str
    node: Node


@dataclass(frozen=True, slots=True)
class Resize:
    """A file gets its length."""

    image: FileImage
    size: int


@dataclass(frozen=True, slots=True)
class Move:
    """A name is changed, with everything below it."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Unlink:
    """A name is removed."""

    path: str


Entry: TypeAlias = Link | Resize | Move | Unlink


def list_names(tree: Tree, directory: str) -> list[str]:
    """Return the names directly in a directory, sorted."""
    prefix = directory if directory == ROOT else directory + "/"
    start = len(prefix)
    below = (path[start:] for path in tree if path.startswith(prefix) and path != ROOT)
    return sorted(name for name in below if "/" not in name)


class Journal:
    """The tree programs see, the tree on the disk, and the entries between the two."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._durable: Tree = dict(tree)
        self._pending: list[Entry] = []

    def record(self, *entries: Entry) -> None:
        """Change the tree; the change reaches the disk with a later commit."""
        for entry in entries:
            _apply(self.tree, entry)
            self._pending.append(entry)

    def commit(self) -> None:
        """Make all entries durable."""
        self._commit(len(self._pending))

    def commit_for(self, image: FileImage) -> None:
        """Make durable what fdatasync guarantees at least: entries up to the one that created or resized the file."""
        for index in range(len(self._pending) - 1, -1, -1):
            entry = self._pending[index]
            if (isinstance(entry, Link) and entry.node is image) or (
                isinstance(entry, Resize) and entry.image is image
            ):
                self._commit(index + 1)
                return

    def _commit(self, count: int) -> None:
        for entry in self._pending[:count]:
            _apply(self._durable, entry)
            if isinstance(entry, Resize):
                entry.image.set_size(entry.size)
        del self._pending[:count]

    def pending(self) -> list[Entry]:
        """Return the entries that a power loss may undo, oldest first."""
        return list(self._pending)

    def durable_tree(self) -> Tree:
        """Return the names on the disk."""
        return dict(self._durable)

    def survive(self, rng: random.Random, mode: CrashMode) -> Journal:
        """Return what is left after a power loss: a prefix of the pending entries, and what each file image keeps."""
        kept = 0 if mode is CrashMode.DROP else rng.randint(0, len(self._pending))
        tree = dict(self._durable)
        sizes: dict[int, int] = {}
        for entry in self._pending[:kept]:
            _apply(tree, entry)
            if isinstance(entry, Resize):
                sizes[id(entry.image)] = entry.size
        left: Tree = {}
        for path in sorted(tree):  # in a fixed order, so that a seed replays
            node = tree[path]
            if isinstance(node, FileImage):
                left[path] = node.survive(rng, mode, sizes.get(id(node), len(node.durable)))
            else:
                left[path] = Directory(node.modified_ms)
        return Journal(left)

    def copy(self) -> Journal:
        """Return an independent copy of names and files, with the same entries still to be committed."""
        twins: dict[int, Node] = {}

        def twin(node: Node) -> Node:
            if id(node) not in twins:
                twins[id(node)] = node.copy() if isinstance(node, FileImage) else Directory(node.modified_ms)
            return twins[id(node)]

        other = Journal({path: twin(node) for path, node in self.tree.items()})
        other._durable = {path: twin(node) for path, node in self._durable.items()}
        for entry in self._pending:
            if isinstance(entry, Link):
                entry = Link(entry.path, twin(entry.node))  # noqa: PLW2901
            elif isinstance(entry, Resize):
                image = twin(entry.image)
                assert isinstance(image, FileImage)
                entry = Resize(image, entry.size)  # noqa: PLW2901
            other._pending.append(entry)
        return other


def _apply(tree: Tree, entry: Entry) -> None:
    if isinstance(entry, Link):
        tree[entry.path] = entry.node
    elif isinstance(entry, Unlink):
        del tree[entry.path]
    elif isinstance(entry, Move) and entry.old != entry.new:
        tree[entry.new] = tree.pop(entry.old)
        under = entry.old + "/"
        for path in [path for path in tree if path.startswith(under)]:
            tree[entry.new + "/" + path[len(under) :]] = tree.pop(path)
