"""Location of the program's data directories."""

from pathlib import Path

from tuner.base.errors import InputError

_PACKAGE = Path(__file__).resolve().parents[1]


def data_directory(name: str) -> Path:
    """Return the data directory `name` (`db`), in an installed wheel or at the root of a checkout.

    A wheel carries it as `tuner/_data/<name>`, because a top-level `db` in site-packages would
    shadow a package of that name. Raises InputError when neither exists.
    """
    for candidate in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise InputError(f"the installation lacks its data directory {name!r}: install tuner again")
