# Makes the project's own virtual environment; sourced by the other scripts, which then find:
#   $root    the checkout, whatever directory the script was called from
#   $bin     the directory of the environment's programs
# and call `prepare run` (what the product needs), `prepare dev` (that, and what its tests need) or `prepare
# dev,dashboard` (that, and what tests in a browser need).
#
# The install is skipped where all of it was installed before, while pyproject.toml, the interpreter and the place of the
# checkout are what they were. It is editable, so a change of the code alone needs none.

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
bin="$root/.venv/bin"

fail() {
    printf '%s: %s\n' "$(basename -- "$0")" "$1" >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# The first interpreter that is new enough: $PYTHON alone when it is set, else what is on the path.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        if command -v "$candidate" >/dev/null && new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "Python 3.11 or newer is needed and was not found (${PYTHON:-python3} is $(version_of "${PYTHON:-python3}")).
Install it, or name one: ${naming_python:-PYTHON=/path/to/python3.11 $0}"
}

version_of() {
    "$1" -c 'import platform; print(platform.python_version())' 2>/dev/null || echo missing
}

# Of the tests: twice as many as cores, since half of their time they wait; but of Chromium, which doesn't, one more.
workers() {
    local cores
    cores=$(nproc 2>/dev/null || echo 2)
    if [ "${1:-}" = all ]; then echo $((cores + 1)); else echo $((2 * cores)); fi
}

# Programs that are started after this run from a copy of the checkout with compiled modules, the folder $compiled. False
# where nothing can be compiled, which is said in one line.
use_compiled_tree() {
    compiled=$("$bin/python" "$root/scripts/wheels/compiled_tree.py") || return 1
    export PYTHONPATH="$compiled"
}

make_environment() {
    local python
    python=$(find_python) || exit 1
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python can't make virtual environments. On Debian and Ubuntu: apt-get install python3-venv"
    echo "Making the environment .venv with Python $(version_of "$python") ..." >&2
    "$python" -m venv --clear "$root/.venv" || fail "the environment .venv could not be made"
    # The pip that comes with Python takes longer to choose releases. It stays where no newer one can be had.
    "$bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 5 --upgrade pip 2>/dev/null || true
}

# A new environment $1 by the interpreter $2 with the wheel of this checkout and its extras $3. Its forwarding path is
# compiled where that can be done.
fill_environment() {
    local wheel
    "$2" -m venv "$1" &&
        wheel=$("$1/bin/python" "$root/scripts/wheels/build_wheel.py" --out "$1/wheel") &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$wheel$3" >&2 &&
        rm -r "$1/wheel"
}

# What an install depends on; anything else changing needs no new one.
fingerprint() {
    { cat "$root/pyproject.toml" && echo "$root" && "$bin/python" -VV; } | sha256sum
}

prepare() {
    local each missing="" now target="$root[$1]"
    { [ -x "$bin/python" ] && new_enough "$bin/python"; } || make_environment
    if [ "$1" = run ]; then target="$root"; fi
    now=$(fingerprint)
    for each in ${1//,/ }; do [ "$(cat "$root/.venv/installed-$each" 2>/dev/null)" = "$now" ] || missing=$each; done
    if [ -z "$missing" ]; then return; fi
    echo "Installing into .venv ..." >&2
    "$bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --editable "$target" >&2 ||
        fail "the install failed; see above. Nothing outside .venv was changed"
    for each in run ${1//,/ }; do echo "$now" >"$root/.venv/installed-$each"; done
}
