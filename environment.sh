#!/bin/sh
# environment.sh DIRECTORY LOCK [EDITABLE]: make the virtual environment DIRECTORY hold exactly
# what LOCK lists and this project itself: installed with EDITABLE, else importable, which is all
# that ranks need.
set -eu

directory=$1
lock=$2
python=${PYTHON:-python3}

stop() {
    echo "tuner: $1" >&2
    exit 1
}

command -v "$python" >/dev/null || stop "$python is not installed; install Python 3.11 or newer"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    stop "$python is older than Python 3.11; name a newer one: make PYTHON=python3.11"

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing python3-venv, which Debian keeps apart from python3"
        { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y python3-venv; } \
            >"$directory.log" 2>&1 ||
            stop "python3-venv could not be installed; see $directory.log"
        rm -f "$directory.log"
    else
        stop "Python has no venv module; run 'apt-get install python3-venv' as root first"
    fi
fi

# Says what is downloaded, which may take minutes; the rest of pip's words is left out.
told() {
    while read -r word rest; do
        case $word in
        Downloading) echo "  $directory: downloading $rest" ;;
        Installing) [ "$rest" = "build dependencies" ] || echo "  $directory: installing" ;;
        FAILED) return 1 ;;
        esac
    done
}

pip() {
    { PIP_PROGRESS_BAR=off PIP_ROOT_USER_ACTION=ignore \
        "$directory/bin/python" -m pip --disable-pip-version-check --no-input "$@" ||
        echo FAILED; } | told ||
        stop "$directory could not be completed; check the network and run make again"
}

echo "setting up $directory from $lock"
[ -x "$directory/bin/python" ] || "$python" -m venv --clear "$directory"
pip install --require-hashes --requirement "$lock"
if [ $# -ge 3 ]; then
    pip install --no-deps --no-build-isolation --editable .
else
    pwd >"$("$directory/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tuner.pth"
fi
