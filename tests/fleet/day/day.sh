#!/bin/bash
# An operator's day in a script, without a terminal: from a requirements file to a second version, back, and
# off the nodes again. JSON goes through jq. test_operators_day.py runs it against the nodes of fleet.yml:
#     day.sh INVENTORY FOLDER        the folder is empty, and everything is written there
set -euo pipefail
cp "$1" "$2/inventory.yml"
cd "$2"
inventory=inventory.yml
good='["gpu-1","leaves","old-1","old-2","sudo-1"]'

said() { printf '\n== %s\n' "$*"; }

# Run a command whose exit code is known beforehand: CI has to tell "some nodes are away" from "it failed".
ends_with() {
    local wanted=$1 code=0
    shift
    "$@" || code=$?
    [ "$code" = "$wanted" ] || { echo "$* ended with $code, not with $wanted" >&2; exit 1; }
}

# Check what a document says; jq prints false where it does not.
holds() { jq -e --argjson good "$good" "$2" "$1" >/dev/null || { echo "$1 does not hold: $2" >&2; jq . "$1" >&2; exit 1; }; }

# Check that a file has this text, whatever its line breaks.
says() { tr -s ' \n' ' ' <"$1" | grep -qF -- "$2" || { echo "$1 does not say: $2" >&2; cat "$1" >&2; exit 1; }; }

package() { # a package with compiled code, in this version
    mkdir -p "day-$1"
    printf '#include <Python.h>\nstatic struct PyModuleDef m = {PyModuleDef_HEAD_INIT, "day"};\nPyMODINIT_FUNC PyInit_day(void) {\n  PyObject *made = PyModule_Create(&m);\n  PyModule_AddStringConstant(made, "version", "%s");\n  return made;\n}\n' "$1" >"day-$1/day.c"
    printf 'from setuptools import Extension, setup\nsetup(ext_modules=[Extension("day", ["day.c"])])\n' >"day-$1/setup.py"
    printf '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n[project]\nname = "day"\nversion = "%s"\ndependencies = ["six==1.17.0"]\n' "$1" >"day-$1/pyproject.toml"
    printf './day-%s\nidna==3.10\n' "$1" >requirements.txt # the second is of pure Python
}

imports() { # each of these nodes imports this version
    local version=$1 nodes=$2
    ansible -i "$inventory" "$nodes" -m command -a "/opt/fleetbuild/current/bin/python -c 'import day, idna; print(day.version)'" >imported
    [ "$(grep -cx "$version" imported)" = "$(tr , '\n' <<<"$nodes" | wc -l)" ] || { cat imported >&2; echo "not all of $nodes import day $version" >&2; exit 1; }
}
