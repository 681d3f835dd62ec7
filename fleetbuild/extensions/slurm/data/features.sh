#!/bin/sh
# Written by `fleetbuild emit slurm`. Run it as a Slurm administrator after each apply:
#     sh features.sh
# Each node that serves a verified release gets the feature of its group, and any other node below
# loses it. Features of other owners stay. Slurm forgets what scontrol sets when slurmctld starts or
# reads slurm.conf again: run this again then.
prefix='@PREFIX@'
failed=0

features() {  # KIND: the node's features of this kind, one a line
    printf '%s\n' "$shown" | tr ' ' '\n' | sed -n "s/^$1=//p" | sed 's/^(null)$//' | tr , '\n'
}

with() {  # FEATURE: the lines without fleetbuild's own features and with this one, as one line
    { awk -v prefix="$prefix" '$0 && index($0, prefix) != 1'; echo "$1"; } | sed '/^$/d' | paste -sd , -
}

set_feature() {  # NODE FEATURE
    if ! shown=$(scontrol show node --oneliner "$1"); then
        echo "features.sh: Slurm does not show the node $1. Use Slurm's name of it in the inventory." >&2
        failed=1
        return
    fi
    available=$(features AvailableFeatures | with "$2")
    active=$(features ActiveFeatures | with "$2")
    [ "$(features AvailableFeatures | paste -sd , -)" = "$available" ] &&
        [ "$(features ActiveFeatures | paste -sd , -)" = "$active" ] && return
    scontrol update NodeName="$1" AvailableFeatures="$available" ActiveFeatures="$active" || failed=1
}

@NODES@
exit "$failed"
