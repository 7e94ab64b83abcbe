"""Where the data directories are that belong to the program but hold none of its code."""

from pathlib import Path

from tuner.base.errors import InputError

_PACKAGE = Path(__file__).resolve().parents[1]


def data_directory(name: str) -> Path:
    """The data directory `name` (`db`): inside an installed wheel, or at the root of a checkout.

    A wheel carries it as `tuner/_data/<name>`, because a top-level `db` in site-packages would
    shadow a package of that name. Raises InputError when neither is there.
    """
    for candidate in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise InputError(f"the installation lacks its data directory {name!r}: install tuner again")
