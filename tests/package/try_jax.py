"""Run the capture tests in several environments, two at a time: `make check-jax` calls this.

    python tests/package/try_jax.py LABEL=PYTHON[,SWITCH...] ... -- PYTEST_ARGUMENTS

A run has the switches set to 1 in its environment. Its output is printed when it has ended; exits with 1 if one fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def run(specification: str, arguments: list[str]) -> tuple[str, subprocess.CompletedProcess[str]]:
    """Return the label and the outcome of one run."""
    label, _, rest = specification.partition("=")
    python, *switches = rest.split(",")
    environment = {**os.environ, **dict.fromkeys(switches, "1")}
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return label, subprocess.run(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )


def main() -> int:
    """Run, print, and judge."""
    split = sys.argv.index("--")
    specifications, arguments = sys.argv[1:split], sys.argv[split + 1 :]
    failed = []
    with ThreadPoolExecutor(2) as pool:
        for label, outcome in pool.map(lambda specification: run(specification, arguments), specifications):
            sys.stdout.write(f"\n== {label}\n{outcome.stdout}\n")
            sys.stdout.flush()
            if outcome.returncode:
                failed.append(label)
    if failed:
        sys.stdout.write(f"failed on: {', '.join(failed)}\n")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
