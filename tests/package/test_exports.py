"""What the package offers: a map that is right, and nothing lost from one release to the next."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import inspect
import pkgutil

import pytest

import trackway

PUBLIC = [
    "trackway",
    "trackway.backends",
    "trackway.capture",
    "trackway.config",
    "trackway.errors",
    "trackway.store",
    "trackway.testing",
    "trackway.tracker",
    "trackway.values",
]


@pytest.mark.parametrize("name", PUBLIC)
def test_all_is_sorted_and_importable(name):
    """`__all__` of every public module is sorted and names only what exists."""
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", [])
    assert list(exported) == sorted(exported, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    for attribute in exported:
        assert getattr(module, attribute) is not None


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_is_documented(name):
    """Every public module, class, function and method has a docstring."""
    module = importlib.import_module(name)
    assert module.__doc__
    undocumented = []
    for attribute in getattr(module, "__all__", []):
        value = getattr(module, attribute)
        if inspect.isfunction(value) and not value.__doc__:
            undocumented.append(attribute)
        if inspect.isclass(value):
            undocumented += [attribute] * (not value.__doc__)
            methods = {n: m for n, m in vars(value).items() if inspect.isfunction(m) and not n.startswith("_")}
            undocumented += [f"{attribute}.{n}" for n, m in methods.items() if not inspect.getdoc(getattr(value, n))]
    assert undocumented == []


def test_the_version_is_that_of_the_distribution():
    """`trackway.__version__` says what is installed."""
    assert trackway.__version__ == importlib.metadata.version("trackway")


def test_dir_lists_the_public_names():
    """`dir(trackway)` shows what can be had, before it was ever used."""
    assert set(trackway.__all__) <= set(dir(trackway))
    with pytest.raises(AttributeError, match="no attribute 'lgo'"):
        trackway.lgo  # noqa: B018


def test_examples_in_docstrings_run():
    """Every `>>>` in the package does what it shows."""
    attempted = 0
    for info in pkgutil.walk_packages(trackway.__path__, "trackway."):
        module = importlib.import_module(info.name)
        failures, tests = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
        assert failures == 0, info.name
        attempted += tests
    failures, tests = doctest.testmod(trackway)
    assert failures == 0
    assert attempted + tests > 5
