"""`trackway export`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import click

from trackway.cli._options import dir_option, examples, find, metrics_option, run_argument
from trackway.cli._output import needed, print_json, to_json
from trackway.cli._rowfiles import write_csv, write_json, write_lines, write_parquet
from trackway.store._layout import safe_name

__all__ = ["command"]

FORMATS = ("csv", "json", "jsonl", "parquet")


@click.command(epilog=examples("trackway export digits-3", "trackway export digits-3 --format parquet -o best"))
@run_argument()
@dir_option
@click.option("--format", "form", type=click.Choice(FORMATS), default="csv", show_default=True, help="Of the rows.")
@click.option("--output", "-o", metavar="FOLDER", help="Folder to make  [default: <run>-export]")
@metrics_option()
@click.option("--ranks", type=click.Choice(("primary", "all")), default="primary", help="Rows of which processes.")
@click.option("--force", "-f", is_flag=True, help="Replace a folder that an export made before.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(
    *,
    text: str,
    folder: str | None,
    form: str,
    output: str | None,
    metrics: tuple[str, ...],
    ranks: str,
    force: bool,
    as_json: bool,
) -> None:
    """Write RUN to a folder: rows.csv (or .json, .jsonl, .parquet), config.json, summary.json and run.json.

    The folder is there once it is complete. `trackway history RUN -n -1 -o rows.csv` writes the rows alone.
    """
    if output and Path(output).suffix[1:] in FORMATS:
        raise click.UsageError(
            f"-o {output!r} is the name of a file, and export makes a folder: give one without {Path(output).suffix}; "
            f"`trackway history RUN -n -1 -o {output}` writes the rows alone"
        )
    if form == "parquet":
        needed("pyarrow.parquet", "parquet", "frames")
    run = find(text, folder)
    target = Path(output or f"{safe_name(run.id)}-export")
    _check(target, force=force)
    target.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.absolute().parent) as scratch:
        made = Path(scratch) / "export"
        made.mkdir()
        rows = _write_rows(run, made / f"rows.{form}", form, list(metrics) or None, ranks)
        _write_rest(run, made)
        if target.is_dir():
            shutil.rmtree(target)
        made.rename(target)
    names = sorted(path.name for path in target.iterdir())
    if as_json:
        print_json({"folder": str(target), "files": names, "rows": rows})
    else:
        click.echo(f"{rows} rows, and {', '.join(names)}, are in {target}")


def _check(target: Path, *, force: bool) -> None:
    if not target.exists() and not target.is_symlink():
        return
    files = {path.name for path in target.iterdir()} if target.is_dir() and not target.is_symlink() else {"?"}
    ours = files <= {"config.json", "summary.json", "run.json", *(f"rows.{form}" for form in FORMATS)}
    if not ours:
        raise click.ClickException(
            f"{str(target)!r} is there, and holds other things than an export; choose another -o"
        )
    if not force and files:
        raise click.ClickException(f"{str(target)!r} is there already; --force replaces it, or choose another -o")


def _write_rows(run: Any, path: Path, form: str, metrics: list[str] | None, ranks: str) -> int:
    if form == "parquet":
        table = run.history(None, metrics=metrics, ranks=ranks, output="arrow")
        write_parquet(table, path)
        return int(table.num_rows)
    rows = run.history(None, metrics=metrics, ranks=ranks)
    write = {"csv": write_csv, "json": write_json, "jsonl": write_lines}[form]
    with path.open("w", encoding="utf-8", newline="") as file:
        write(rows, file)
    return len(rows)


def _write_rest(run: Any, folder: Path) -> None:
    about = {
        "id": run.id,
        "state": run.state,
        "error": run.error,
        "attempts": run.attempts,
        "artifacts": run.artifacts,
    }
    for name, content in (("config", run.config), ("summary", run.summary), ("run", about)):
        (folder / f"{name}.json").write_text(to_json(content, indent=2) + "\n", encoding="utf-8")
