"""Options that several commands have, and how a run is found."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, final

import click
from click.shell_completion import CompletionItem

__all__ = [
    "Condition",
    "as_json",
    "condition_option",
    "dir_option",
    "each",
    "examples",
    "fetched",
    "find",
    "folder_argument",
    "matching",
    "metrics_option",
    "names_in",
    "no_runs",
    "run_argument",
    "the_folder",
]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_AT_ONCE = 16  # requests to an object store
_BY_DEFAULT = "runs"
_LEAST = 4  # characters that a part of an id has
_ROWS = ".jsonl"


@final
class _Run(click.ParamType[str]):
    """A path or an id; the shell completes both."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        from trackway.store._runs import runs

        try:
            names = [run.path.name for run in runs(ctx.params.get("folder"))]
        except OSError:
            names = []
        items = [CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()]
        return items or [CompletionItem(incomplete, type="file")]


def examples(*lines: str) -> str:
    """Return the end of a command's help."""
    return "\b\nExamples:\n" + "".join(f"  {line}\n" for line in lines)


def run_argument(*, several: bool = False) -> Callable[[F], F]:
    """Return the argument RUN, or RUN... of which there are one or more."""
    if several:
        return click.argument("texts", type=_Run(), nargs=-1, required=True, metavar="RUN...")
    return click.argument("text", type=_Run(), metavar="RUN")


dir_option = click.option(
    "--dir",
    "folder",
    metavar="DIR",
    help='Folder or URL in which ids are looked up  [default: $TRACKWAY_DIR, or "runs"]',
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def folder_argument(function: F) -> F:
    """Give a command the argument DIR, and for the same the option --dir, as the other commands have it."""
    option = click.option("--dir", "option", metavar="DIR", help="The same as the argument DIR.")
    return click.argument("folder", required=False, metavar="[DIR]")(option(function))


def the_folder(argument: str | None, option: str | None) -> str | None:
    """Return the folder that was given in either way.

    Raises:
        click.UsageError: if two were given.
    """
    if argument is not None and option is not None and argument != option:
        raise click.UsageError(f"the argument DIR is {argument!r}, and --dir is {option!r}; give one folder")
    return option if argument is None else argument


def _split(_ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for value in values for part in value.split(",") if part.strip()))


def metrics_option(text: str = "Names or globs of metrics, such as loss,'train/*'.") -> Callable[[F], F]:
    """Return the option --metrics, whose value is a tuple of names."""
    return click.option("--metrics", "-m", multiple=True, callback=_split, metavar="NAMES", help=text)


def names_in(option: str, *others: str, text: str) -> Callable[[F], F]:
    """Return an option that takes names joined by commas."""
    return click.option(option, *others, multiple=True, callback=_split, metavar="NAMES", help=text)


def find(text: str, folder: str | None) -> Any:
    """Return the run that *text* means: a path or a URL, or an id in *folder*, or a part of one.

    Raises:
        click.ClickException: if there is none; it names what is near.
    """
    from trackway.store._layout import is_url, safe_name
    from trackway.store._runs import folder_of_runs, read_run

    if is_url(text):
        try:
            return read_run(text)
        except FileNotFoundError:
            above, _, name = text.rstrip("/").rpartition("/")
            known = _names_in(text) or _names_in(above)
            raise click.ClickException(f"no run {text!r}: there is none{_hint(name, above, known)}") from None
    place = str(folder_of_runs(folder))
    if "\0" not in text and text:
        for path in (text, f"{place}/{text}", f"{place}/{safe_name(text)}"):
            if is_url(path):
                with contextlib.suppress(FileNotFoundError):
                    return read_run(path)
            elif Path(path).exists():
                return _read(path)
    known = _names_in(place)
    meant = [name for name in known if text in name] if len(text) >= _LEAST else []
    if len(meant) == 1:
        return read_run(f"{place}/{meant[0]}")
    several = f"; of several runs that is a part of the id: {', '.join(meant[:5])}" if meant else ""
    raise click.ClickException(
        f"no run {text!r}: there is no such path, and no such id in {place!r}{several or _hint(text, place, known)}"
    )


def _read(path: str) -> Any:
    """Return the run in *path*; a folder without one is a mistake."""
    from trackway.store._runs import holds_run, read_run

    if Path(path).is_dir() and not holds_run(path):
        names = _names_in(path)
        some = f"it holds runs: give one of them, such as {path.rstrip('/')}/{names[0]}" if names else ""
        raise click.ClickException(f"no run {path!r}: that folder is none; {some or 'it has no run.json and no rows'}")
    if Path(path).is_file() and not path.endswith(_ROWS):
        raise click.ClickException(f"no run {path!r}: that file is none of rows, whose names end with {_ROWS}")
    return read_run(path)


def _names_in(folder: str) -> list[str]:
    """Return the names of the runs in *folder*; none where it cannot be read."""
    from trackway.store._runs import runs

    try:
        return [run.path.name for run in runs(folder)]
    except OSError:
        return []


def _hint(name: str, folder: str, known: list[str]) -> str:
    """Say which of the runs *known* in *folder* may be meant."""
    import difflib

    near = difflib.get_close_matches(name, known, 3)
    if near:
        return f"; did you mean {', '.join(near)}?"
    return f"; `trackway runs {folder}` lists what there is" if known else f"; there are no runs in {folder!r}"


def each(function: Callable[[Any], T], found: Sequence[Any]) -> list[T]:
    """Return the results of *function* for each of the runs *found*; on object stores of several at the same time."""
    from trackway.store._layout import is_url

    if not any(is_url(run.place) for run in found):
        return list(map(function, found))
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(function, found))


def fetched(folder: str | None) -> list[Any]:
    """Return the runs in *folder*; of those on object stores the small files are read, of many at the same time."""
    from trackway.store._layout import is_url
    from trackway.store._runs import runs

    try:
        found = runs(folder)
    except FileNotFoundError as error:
        raise click.ClickException(
            f"{error.strerror}: {error.filename}; runs are in the folder {_BY_DEFAULT!r} below where the training was "
            "started: go there, give the folder, or set TRACKWAY_DIR"
        ) from None
    each(lambda run: is_url(run.place) and (run.state, run.summary, run.config), found)
    return found


def no_runs(folder: str | None, *, fitting: bool) -> str:
    """Say that there are no runs in *folder*, or none *fitting* what was asked."""
    from trackway.store._layout import is_url
    from trackway.store._runs import folder_of_runs, holds_run

    place = str(folder_of_runs(folder))
    if not is_url(place) and holds_run(place):
        return f"no runs in {place}: it is a run itself, which `trackway show {place}` shows"
    return f"no runs in {place}" + (" that fit" if fitting else "")


# --- conditions on configurations ---

_CONDITION = re.compile(r"(?P<name>[^!<>=]+)(?P<sign>!=|<=|>=|==?|<|>)(?P<value>.*)", re.DOTALL)


@final
class Condition(NamedTuple):
    """A condition such as `lr>=0.1`."""

    name: str
    sign: str
    value: str

    def holds(self, value: Any) -> bool:
        """Whether *value* satisfies it; a missing one, None, satisfies `!=` alone."""
        import fnmatch

        wanted, given = _number(self.value), _number(value)
        if self.sign in {"=", "!="}:
            if wanted is not None and given is not None:
                equal = wanted == given
            else:
                equal = value is not None and fnmatch.fnmatchcase(_text(value), self.value)
            return equal == (self.sign == "=")
        if wanted is None or given is None:
            return False
        return {"<": given < wanted, "<=": given <= wanted, ">": given > wanted, ">=": given >= wanted}[self.sign]


def _text(value: Any) -> str:
    return (
        {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else str(value)
    )


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _conditions(_ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[Condition, ...]:
    found = []
    for value in values:
        match = _CONDITION.fullmatch(value)
        if match is None:
            raise click.BadParameter(
                f"{value!r} is no condition; give one such as lr=0.1, 'lr>=0.1' or 'model/name!=mlp'"
            )
        sign = "=" if match["sign"] == "==" else match["sign"]
        found.append(Condition(match["name"].strip().replace(".", "/"), sign, match["value"].strip()))
    return tuple(found)


condition_option = click.option(
    "--where",
    multiple=True,
    callback=_conditions,
    metavar="CONDITION",
    help="Only runs whose configuration fits, such as lr=0.1, 'lr>=0.1', 'model/name=mlp*'; may be repeated.",
)


def matching(found: list[Any], conditions: tuple[Condition, ...]) -> list[Any]:
    """Return the runs that satisfy all *conditions*; a name is that of a configuration value, else of the summary.

    Raises:
        click.ClickException: if no run has a value of one of the names.
    """
    from trackway.cli._output import flat

    if not conditions:
        return found
    known = [(run, {"state": run.state, **_dotted(flat(run.summary)), **_dotted(flat(run.config))}) for run in found]
    for condition in conditions:
        if known and not any(condition.name in values for _, values in known):
            names = sorted({name for run, _ in known for name in flat(run.config)})
            raise click.ClickException(f"no run has a value {condition.name!r}; in configurations: {', '.join(names)}")
    return [
        run for run, values in known if all(condition.holds(values.get(condition.name)) for condition in conditions)
    ]


def _dotted(values: dict[str, Any]) -> dict[str, Any]:
    """Names with a dot are asked for as if it separated them."""
    return {name.replace(".", "/"): value for name, value in values.items()}
