"""Packages that a backend needs and that may be missing."""

from __future__ import annotations

from trackway.errors import ConfigError

__all__ = ["missing_extra"]


def missing_extra(package: str, extra: str, error: ImportError) -> ConfigError:
    """Return the error for a backend whose library cannot be imported; *error* is kept as its cause.

    ```python
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise missing_extra("tensorboardX", "tensorboard", error) from error
    ```

    Args:
        package: The library, as it is imported.
        extra: The extra of trackway that installs it.
        error: What the import raised.
    """
    absent = isinstance(error, ModuleNotFoundError) and error.name == package
    state = "is not installed" if absent else f"cannot be imported ({type(error).__name__}: {error})"
    result = ConfigError(f'the package {package} {state}; install it with `pip install "trackway[{extra}]"`')
    result.__cause__ = error
    return result
