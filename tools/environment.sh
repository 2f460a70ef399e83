# shellcheck shell=bash
# Make an environment beside .venv, for tests that need other packages than it has, and run commands there. The scripts
# that name those packages source this in the root of the checkout.

# make_environment VENV PYTHON OTHERS REQUIREMENT...: make VENV by PYTHON, or bring it up to date, where what it is made
# of is newer. It has pytest and the requirements, hoodoo among them (--editable .), of the versions in
# requirements-dev.txt; only the packages OTHERS, names with | between them, may have others.
make_environment() {
    local venv=$1 python=$2 others=$3
    shift 3
    is_old "$venv/stamp" || return 0
    # without pyvenv.cfg, as an interrupted removal leaves it, pip would install into the Python that made it
    [ -x "$venv/bin/python" ] && [ -f "$venv/pyvenv.cfg" ] || "$python" -m venv --clear "$venv"
    grep -Ev "^($others)==" requirements-dev.txt >"$venv/constraints.txt"
    "$venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --constraint "$venv/constraints.txt" \
        pytest pytest-timeout pytest-rerunfailures pytest-xdist hypothesis "$@"
    touch "$venv/stamp"
}

is_old() { # is a stamp older than what its environment is made of, or not there?
    local file
    for file in requirements-dev.txt pyproject.toml tools/environment.sh "tools/${0##*/}"; do
        if [ "$file" -nt "$1" ]; then return 0; fi
    done
    return 1
}

# run_in VENV COMMAND ARGUMENT...: go on as a command of the environment.
run_in() {
    local venv=$1 command=$2
    shift 2
    exec "$venv/bin/$command" "$@"
}
