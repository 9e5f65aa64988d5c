"""Where tracker types may come from.

Three places, the earlier winning: the modules of this distribution, entry points in the group `trackway.backends`,
and modules that another distribution puts beside ours in `trackway/backends/`.
"""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["GROUP", "Source", "is_built_in", "sources"]

GROUP = "trackway.backends"


class Source(NamedTuple):
    """A module that is to register a tracker type, or a class in it that is to be registered.

    Attributes:
        module: The module to import.
        attribute: The config class in it; None where the module registers its types itself.
        origin: Who brings it, for messages.
    """

    module: str
    attribute: str | None
    origin: str

    def __str__(self) -> str:
        return f"{self.module}{f':{self.attribute}' if self.attribute else ''} ({self.origin})"


def sources() -> dict[str, list[Source]]:
    """Return type names to the places that offer them, the one that wins first."""
    package = importlib.import_module(GROUP)
    return _scanned(tuple(package.__path__), tuple(sys.path))


@functools.lru_cache(maxsize=1)
def _scanned(folders: tuple[str, ...], _search_path: tuple[str, ...]) -> dict[str, list[Source]]:
    found: dict[str, list[Source]] = {}
    ours, others = _our_folder(), [folder for folder in folders if not _same(folder, _our_folder())]
    for name, source in (*_modules([ours], "built in"), *_entry_points(), *_modules(others, None)):
        offers = found.setdefault(name, [])
        # a distribution may both ship a module here and announce it by an entry point
        if all((offer.module, offer.origin) != (source.module, source.origin) for offer in offers):
            offers.append(source)
    return found


def _our_folder() -> str:
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), "backends")  # noqa: PTH118, PTH120 - pathlib costs


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _modules(folders: list[str], origin: str | None) -> Iterator[tuple[str, Source]]:
    for folder in folders:
        for module in pkgutil.iter_modules([folder]):
            if not module.name.startswith("_"):
                yield module.name, Source(f"{GROUP}.{module.name}", None, origin or folder)


def _entry_points() -> Iterator[tuple[str, Source]]:
    from importlib import metadata

    found = []
    for point in metadata.entry_points(group=GROUP):
        distribution = f"{point.dist.name} {point.dist.version}" if point.dist else "an unnamed distribution"
        found.append((point.name, Source(point.module, point.attr or None, f"entry point of {distribution}")))
    # in the order of the distributions' names: that of their folders on disk differs from machine to machine
    yield from sorted(found, key=lambda item: item[1].origin)


def is_built_in(name: str) -> bool:
    """Whether the type *name* belongs to this distribution."""
    first = sources().get(name, [])[:1]
    return bool(first) and first[0].origin == "built in"
