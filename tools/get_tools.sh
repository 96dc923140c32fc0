# get_tools.sh - sourced by ./run: gets what is missing, says it first.
#
# Steps, each idempotent: Debian packages (tools/packages.txt), a .venv with pinned tools from PyPI
# (tools/requirements-*.txt), for the long tier libraries for Arm64. Without a network a step that
# has nothing to do does not notice. apt and pip keep the machine's own configuration.

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

# apt-get for arm64, with lists and a state of its own in .cache/arm64.
apt_arm64() {
    state=$PWD/.cache/arm64/apt
    apt-get -qy -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state" \
        -o Dir::State::status="$state/status" -o Dir::Cache="$state" \
        -o APT::Sandbox::User="$(id -un)" -o APT::Install-Recommends=false "$@"
}

# The libraries of the emulated tests: packages for arm64 and all that they need, unpacked in
# .cache/arm64/root, so that the machine stays of one architecture. Without them the tier says what
# it skips.
setup_arm64() {
    at=.cache/arm64 wanted=$(packages_of arm64 | tr '\n' ' ')
    [ "$(cat $at/has 2>/dev/null)" != "$wanted" ] || return 0
    say "== arm64 packages to unpack in $at: $wanted"
    rm -rf $at
    mkdir -p $at/root $at/apt/lists/partial $at/apt/archives/partial
    : >$at/apt/status
    # shellcheck disable=SC2086
    if quietly apt_arm64 update && quietly apt_arm64 --download-only install $wanted; then
        for package in $at/apt/archives/*.deb; do dpkg-deb -x "$package" $at/root; done
        [ -e $at/root/lib ] || ln -s usr/lib $at/root/lib
        find $at/root -type l -lname '/*' | while read -r link; do # else they leave the root
            ln -sfnr "$at/root$(readlink "$link")" "$link"
        done
        printf '%s' "$wanted" >$at/has
    else
        say "run: could not get them, so the tests for Arm64 will be skipped"
    fi
    rm -rf $at/apt
}

# setup GROUP: all that the group needs, except model files.
setup() {
    case $1 in
    build) packages=build requirements=build ;;
    wheel) packages=build requirements='build wheel' ;;
    test) packages='build test' requirements='build test' ;;
    long) packages='build test long' requirements='build test wheel' ;;
    *) fail "no set-up named $1 (build, wheel, test, long)" ;;
    esac
    # shellcheck disable=SC2086
    setup_packages $packages
    # shellcheck disable=SC2086
    setup_venv $requirements
    [ "$1" != long ] || setup_arm64
}
