#!/bin/sh
# environment.sh DIRECTORY LOCK [editable|importable]: install the packages of LOCK into the virtual
# environment DIRECTORY. It checks that Python is usable and leaves the rest to environment.py; what
# the system lacks it names, and installs nothing outside of DIRECTORY.
set -eu

python=${PYTHON:-python3}

stop() {
    printf 'tuner: %s\n' "$@" >&2
    exit 1
}

command -v "$python" >/dev/null ||
    stop "$python is not installed. On Debian or Ubuntu type, as root:" \
        "  apt-get install python3 python3-venv"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    stop "$python is older than Python 3.11; name a newer one: make PYTHON=python3.11"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    stop "$python has no module venv. On Debian or Ubuntu type, as root:" \
        "  apt-get install python3-venv" "and then the same make command again"

exec "$python" "$(dirname "$0")/environment.py" "$@"
