"""Options that several commands have, and how a run is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, final

import click
from click.shell_completion import CompletionItem

__all__ = [
    "Condition",
    "as_json",
    "condition_option",
    "dir_option",
    "find",
    "matching",
    "metrics_option",
    "names_in",
    "run_argument",
]

F = TypeVar("F", bound=Callable[..., Any])


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


def run_argument(*, several: bool = False) -> Callable[[F], F]:
    """Return the argument RUN, or RUN... of which there are one or more."""
    if several:
        return click.argument("texts", type=_Run(), nargs=-1, required=True, metavar="RUN...")
    return click.argument("text", type=_Run(), metavar="RUN")


dir_option = click.option(
    "--dir", "folder", metavar="DIR", help='Folder in which ids are looked up  [default: $TRACKWAY_DIR, or "runs"]'
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _split(_ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for value in values for part in value.split(",") if part.strip()))


def metrics_option(text: str = "Names or globs of metrics, such as loss,'train/*'.") -> Callable[[F], F]:
    """Return the option --metrics, whose value is a tuple of names."""
    return click.option("--metrics", "-m", multiple=True, callback=_split, metavar="NAMES", help=text)


def names_in(option: str, *others: str, text: str) -> Callable[[F], F]:
    """Return an option that takes names joined by commas."""
    return click.option(option, *others, multiple=True, callback=_split, metavar="NAMES", help=text)


def find(text: str, folder: str | None) -> Any:
    """Return the run that *text* means: a path, or an id in *folder*.

    Raises:
        click.ClickException: if there is none; it names what is near.
    """
    from trackway.store._layout import is_url, safe_name
    from trackway.store._runs import folder_of_runs, read_run

    if is_url(text):
        try:
            return read_run(text)
        except OSError as error:
            raise click.ClickException(f"no run {text!r}: {error}") from error
    if "\0" not in text and text:
        place = folder_of_runs(folder)
        for path in (Path(text), place / text, place / safe_name(text)):
            if path.exists():
                return read_run(path)
    import difflib

    from trackway.store._runs import runs

    place = folder_of_runs(folder)
    try:
        known = [run.path.name for run in runs(folder)]
    except OSError:
        known = []
    near = difflib.get_close_matches(text, known, 3)
    hint = f"; did you mean {', '.join(near)}?" if near else f"; `trackway runs {place}` lists what there is"
    raise click.ClickException(f"no run {text!r}: there is no such path, and no such id in {str(place)!r}{hint}")


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
