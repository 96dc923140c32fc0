# get_tools.sh - sourced by ./run: gets what is missing, says it first.
#
# Steps, each idempotent: Debian packages (tools/packages.txt), a .venv with pinned tools from PyPI
# (tools/requirements-*.txt). Without a network a step that has nothing to do does not notice. apt
# and pip keep the machine's own configuration.

say() { printf '%s\n' "$*" >&2; }
fail() { say "run: $*"; exit 1; }

# quietly COMMAND...: its output is shown only when it fails.
quietly() { output=$("$@" 2>&1) || { say "$output"; return 1; }; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# packages_of GROUP: its packages, one a line.
packages_of() { sed -n "s/^$1  *//p" tools/packages.txt | tr -s ' ' '\n'; }

# A package counts as there when dpkg says so.
missing_packages() {
    for group in "$@"; do packages_of "$group"; done | while read -r package; do
        state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || state=
        [ "$state" = installed ] || printf ' %s' "$package"
    done
}

# apt_install PACKAGE...: with the lists that are there; with fresh lists when that fails.
apt_install() {
    for attempt in first second; do
        if [ $attempt = second ] || ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1; then
            say "== apt-get update"
            quietly as_root apt-get -q update || return 1
        fi
        quietly as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get -q install -y --no-install-recommends "$@" && return 0
    done
    return 1
}

setup_packages() {
    command -v dpkg-query >/dev/null || {
        say "run: no dpkg here; what Debian calls so is needed:"
        for group in "$@"; do packages_of "$group"; done >&2
        return 0
    }
    missing=$(missing_packages "$@")
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
        fail "no root and no sudo here; root must do: apt-get install$missing"
    say "== Debian packages to install:$missing"
    # shellcheck disable=SC2086
    apt_install $missing || fail "could not install:$missing (no network?)"
}

PYTHON_FITS='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'

# The first Python of at least 3.11 that can make a venv: the one in PATH, else Debian's.
find_python() {
    for python in python3 /usr/bin/python3; do
        if "$python" -c "$PYTHON_FITS" 2>/dev/null; then
            command -v "$python"
            return
        fi
    done
    fail "Python 3.11 or newer with venv is needed (Debian: python3, python3-venv)"
}

# A venv holds absolute paths: it is remade when the checkout has moved or its Python has changed.
setup_venv() {
    python=$(find_python)
    born="$PWD $("$python" -c 'import sys; print(sys.executable, sys.version)')"
    if [ "$(cat .venv/born 2>/dev/null)" != "$born" ]; then
        say "== making .venv with $python"
        rm -rf .venv
        "$python" -m venv .venv || fail "could not make .venv"
        printf '%s\n' "$born" >.venv/born
    fi
    for group in "$@"; do
        list=tools/requirements-$group.txt
        cmp -s "$list" ".venv/has-$group" && continue
        say "== Python packages to install in .venv: $(tr '\n' ' ' <"$list")"
        .venv/bin/python -m pip --disable-pip-version-check install -qq -r "$list" >&2 ||
            fail "could not install $list (no network?)"
        cp "$list" ".venv/has-$group"
    done
}

# setup build|test|long: everything of the group and of those before it, except model files.
setup() {
    case $1 in
    build) packages=build requirements=build ;;
    test) packages='build test' requirements='build test' ;;
    long) packages='build test long' requirements='build test' ;;
    *) fail "no set-up named $1 (build, test, long)" ;;
    esac
    # shellcheck disable=SC2086
    setup_packages $packages
    # shellcheck disable=SC2086
    setup_venv $requirements
}
