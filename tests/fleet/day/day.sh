#!/bin/bash
# An operator's day in a script, without a terminal: from a requirements file to a second version, back, and
# off the nodes again. JSON goes through jq, and each command that a message proposes is pasted.
# test_operators_day.py runs it against the nodes of fleet.yml:
#     day.sh INVENTORY FOLDER SECONDS  the folder is empty, and everything is written there
set -euo pipefail
timeout=$3 # of each node's probe
cp "$1" "$2/inventory.yml"
cd "$2"
inventory=inventory.yml
good='["gpu-1","old-1","old-2","sudo-1"]'

said() { printf '\n== %s\n' "$*"; }

# Run a command whose exit code is known beforehand: CI has to tell "some nodes are away" from "it failed".
ends_with() {
    local wanted=$1 code=0
    shift
    "$@" || code=$?
    [ "$code" = "$wanted" ] || { echo "$* ended with $code, not with $wanted" >&2; exit 1; }
}

# Keep what the program prints: later each command in it is pasted.
fleetbuild() {
    local code=0
    command fleetbuild "$@" >out 2>err || code=$?
    tee -a printed <out
    tee -a printed <err >&2
    return "$code"
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
    cat >requirements.txt <<-END
		./day-$1
		crcmod==1.7  # compiled, and published only as source
		MarkupSafe==3.0.2
		msgpack==1.1.0
		psutil==7.0.0
		PyYAML==6.0.2
		wrapt==1.17.2
		click==8.1.8  # this one and those below are of pure Python
		idna==3.10
		Jinja2==3.1.6
		packaging==24.2
	END
}

imports() { # each of these nodes imports this version
    local version=$1 nodes=$2
    ansible -i "$inventory" "$nodes" -m command -a "/opt/fleetbuild/current/bin/python -c 'import click, day, idna, jinja2, msgpack, packaging, psutil, wrapt, yaml; from crcmod import _crcfunext; print(day.version)'" >imported
    [ "$(grep -cx "$version" imported)" = "$(tr , '\n' <<<"$nodes" | wc -l)" ] || { cat imported >&2; echo "not all of $nodes import day $version" >&2; exit 1; }
}

said "Morning: a requirements file becomes a plan"
package 1.0
ends_with 4 fleetbuild plan "$inventory" -r requirements.txt --timeout "$timeout" --json >plan.json
holds plan.json '[.nodes | to_entries[] | select(.value.state == "ok") | .key] | sort == $good'
holds plan.json '[.nodes["no-venv", "no-python", "full", "frozen"] | select(.state == "blocked" and (.fix | length > 0))] | length == 4'
holds plan.json '.nodes.full.reason | test("4 MB free")'
holds plan.json '.nodes.frozen.reason | test("read-only")'
holds plan.json '[.nodes["away", "hangs", "locked"] | select(.state == "unreachable")] | length == 3'
holds plan.json ".nodes.hangs.reason | test(\"no answer within $timeout s\")"
holds plan.json '.nodes.locked.reason | test("become password")'
holds plan.json '.nodes.left.state == "skipped"'
holds plan.json '[.groups[].wheels[] | select(.package == "day") | .wheel_version] | unique | length == 2'
holds plan.json '[.groups[].wheels[] | select(.package == "idna") | [.action, .artifact_key]] | unique | length == 1'

said "CI applies it: events as JSON, one a line"
ends_with 4 fleetbuild apply --json >events.jsonl
jq -s . events.jsonl >events.json
holds events.json '[.[] | select(.stage == "activate" and .state == "ok") | .node] | unique == $good'
[ -n "$(find .fleetbuild/manifests -name '*.yaml')" ] || { echo "apply wrote no manifests" >&2; exit 1; }
imports 1.0 gpu-1,old-1,old-2,sudo-1
ansible -i "$inventory" gpu-1 -m command -a "/opt/fleetbuild/current/bin/python --version" | grep -q "^Python 3.13" || { echo "gpu-1 has another Python" >&2; exit 1; }

said "The node that hangs costs each command $timeout s, and is left out"
sed -i "s/^\( *\)ansible_user: slow$/&\n\1fleetbuild_skip: true/" "$inventory"
ends_with 3 fleetbuild status "$inventory" --timeout "$timeout" --json >status.json
holds status.json '[.nodes | to_entries[] | select(.value.release_id) | .key] | sort == $good'
holds status.json '.nodes.hangs.state == "skipped"'
first=$(jq -r '.nodes["gpu-1"].release_id' status.json)

said "The same again changes nothing"
ends_with 4 fleetbuild apply "$inventory" -r requirements.txt --timeout "$timeout" --yes

said "Noon: a node leaves, and the second version comes"
cp "$inventory" before.yml
sed -i -e '/^    old-2:$/,+1d' -e '/^        old-2: {}$/d' "$inventory"
good='["gpu-1","old-1","sudo-1"]'
package 2.0
ends_with 2 fleetbuild apply "$inventory" -r requirements.txt >refused 2>&1
says refused "as in the last apply"
says refused "day 1.0+cpu.avx → 2.0+cpu.avx"
pasted=$(sed -n 's/^fix: Run: //p' refused)
ends_with 4 $pasted # the command that the refusal names, as it stands
imports 2.0 gpu-1,old-1,sudo-1
ends_with 3 fleetbuild status "$inventory" >status 2>&1
says status "No longer in the inventory, and still with a release: old-2. fix: "
ends_with 3 fleetbuild status "$inventory" --json >status.json
holds status.json "[.nodes[\$good[]].release_id | select(. == \"$first\" or . == null)] | length == 0"
fleetbuild explain gpu-1 | tee explained
says explained "is current, as planned"

said "Afternoon: back to the first"
ends_with 3 fleetbuild rollback "$inventory" --yes
imports 1.0 gpu-1,old-1,sudo-1
ends_with 3 fleetbuild verify "$inventory" --json >verified.jsonl

said "For colleagues: an index that their own environments install from"
fleetbuild store export wheels
holds wheels/variants.json '[.variants[] | select(.package == "day") | .version] | length == 3'
group=$(jq -r '.variants[0].group' wheels/variants.json)
grep -q -- '--hash=sha256:' "wheels/$group/requirements.txt"

said "Each command that was printed so far, as it stands"
python - >hints <<-'END'
	from fleetbuild.cli.hints import commands
	text = open("printed").read()
	print(*dict.fromkeys(text[each.start : each.end] for each in commands(text)), sep="\n")
END
while read -r hint; do
    code=0
    bash -c "$hint" >pasted 2>&1 </dev/null || code=$?
    echo "$hint ended with $code"
    [[ $code =~ ^[034]$ ]] || grep -q "this command asks first" pasted || { echo "$hint"; cat pasted; } >>wrong
done <hints
[ ! -s wrong ] || { echo "these end with an error:" >&2; cat wrong >&2; exit 1; }

said "Evening: off the nodes again, and off the one that left"
ends_with 2 fleetbuild remove "$inventory" >refused 2>&1
says refused ", and $first before it" # the pasted apply brought the second version again
says refused "Run: fleetbuild remove inventory.yml --yes"
ends_with 3 fleetbuild remove "$inventory" --yes
fleetbuild remove before.yml --limit old-2 --timeout "$timeout" --yes
ends_with 3 fleetbuild status before.yml --timeout "$timeout" --json >status.json
holds status.json '[.nodes[] | select(.release_id)] | length == 0'
said "The day is over"
