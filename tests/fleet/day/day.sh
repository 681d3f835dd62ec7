#!/bin/bash
# An operator's day in a script, without a terminal: from a requirements file to a second version, back, and
# off the nodes again. JSON goes through jq. test_operators_day.py runs it against the nodes of fleet.yml:
#     day.sh INVENTORY FOLDER        the folder is empty, and everything is written there
set -euo pipefail
inventory=$1 folder=$2
cd "$folder"
good='["new-1","new-2","old-1"]'

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

package() { # a package with compiled code, in this version
    mkdir -p "day-$1"
    printf '#include <Python.h>\nstatic struct PyModuleDef m = {PyModuleDef_HEAD_INIT, "day"};\nPyMODINIT_FUNC PyInit_day(void) {\n  PyObject *made = PyModule_Create(&m);\n  PyModule_AddStringConstant(made, "version", "%s");\n  return made;\n}\n' "$1" >"day-$1/day.c"
    printf 'from setuptools import Extension, setup\nsetup(ext_modules=[Extension("day", ["day.c"])])\n' >"day-$1/setup.py"
    printf '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n[project]\nname = "day"\nversion = "%s"\ndependencies = ["six==1.17.0"]\n' "$1" >"day-$1/pyproject.toml"
}

imports() { # each good node imports this version
    ansible -i "$inventory" new-1,new-2,old-1 -m command -a "/opt/fleetbuild/current/bin/python -c 'import day; print(day.version)'" | tee imported
    [ "$(grep -cx "$1" imported)" = 3 ] || { echo "not 3 nodes import day $1" >&2; exit 1; }
}

said "Morning: a requirements file becomes a plan"
package 1.0
printf './day-1.0\n' >requirements.txt
ends_with 4 fleetbuild plan "$inventory" -r requirements.txt
ends_with 4 fleetbuild plan "$inventory" -r requirements.txt --json >plan.json
holds plan.json '[.nodes | to_entries[] | select(.value.state == "ok") | .key] | sort == $good'
holds plan.json '.nodes.bare.state == "blocked" and (.nodes.bare.fix | length > 0)'
holds plan.json '.nodes.frozen.state == "blocked" and (.nodes.frozen.reason | test("read-only"))'
holds plan.json '.nodes.away.state == "unreachable" and .nodes.left.state == "skipped"'
holds plan.json '[.groups[].wheels[] | select(.package == "day") | .wheel_version] | unique | length == 2'

said "CI applies it: events as JSON, one a line"
ends_with 4 fleetbuild apply --json >events.jsonl
jq -s . events.jsonl >events.json
holds events.json '[.[] | select(.stage == "activate" and .state == "ok") | .node] | unique == $good'
imports 1.0

said "Status, for programs"
ends_with 3 fleetbuild status "$inventory" --json >status.json
holds status.json '[.nodes | to_entries[] | select(.value.release_id) | .key] | sort == $good'
first=$(jq -r '.nodes["new-1"].release_id' status.json)

said "The same again changes nothing"
ends_with 4 fleetbuild apply "$inventory" -r requirements.txt --yes

said "Noon: the second version"
package 2.0
printf './day-2.0\n' >requirements.txt
ends_with 4 fleetbuild apply "$inventory" -r requirements.txt --yes
imports 2.0
ends_with 3 fleetbuild status "$inventory" --json >status.json
holds status.json ".nodes[\"new-1\"].release_id != \"$first\""

said "Afternoon: back to the first"
ends_with 3 fleetbuild rollback "$inventory" --yes
imports 1.0
ends_with 3 fleetbuild status "$inventory" --json >status.json
holds status.json "[.nodes[\"new-1\", \"new-2\"].release_id] | unique == [\"$first\"]"
ends_with 3 fleetbuild verify "$inventory"

said "For colleagues: an index that their own environments install from"
fleetbuild store export wheels
holds wheels/variants.json '[.variants[] | select(.package == "day") | .version] | length == 2'
group=$(jq -r '.variants[0].group' wheels/variants.json)
grep -q -- '--hash=sha256:' "wheels/$group/requirements.txt"

said "Evening: off the nodes again"
ends_with 2 fleetbuild remove "$inventory"
ends_with 3 fleetbuild remove "$inventory" --yes
ends_with 3 fleetbuild status "$inventory" --json >status.json
holds status.json '[.nodes[] | select(.release_id)] | length == 0'
said "The day is over"
