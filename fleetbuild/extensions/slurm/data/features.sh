#!/bin/sh
# Written by `fleetbuild emit slurm`, for what served then: write it again before you run it again.
# Run it as a Slurm administrator after each apply, rollback and remove, and each time slurmctld has
# started or read slurm.conf again, because Slurm forgets what scontrol sets:
#     sh features.sh
# A node below gets this feature in place of others of fleetbuild; "-" takes them off, and "?" leaves
# them, because what serves there is not known. Features of other owners stay.
wanted='
@NODES@
'
nodes=$(scontrol show node --oneliner) || exit 1
changes=$(printf '%s\n' "$nodes" | wanted="$wanted" awk -v prefix='@PREFIX@' '
    function changed(text, feature,    each, count, i, kept) {
        count = split(text, each, ",")
        for (i = 1; i <= count; i++)
            if (index(each[i], prefix) != 1) kept = kept each[i] ","
        return feature == "-" ? substr(kept, 1, length(kept) - 1) : kept feature
    }
    BEGIN {
        count = split(ENVIRON["wanted"], line, "\n")  # -v takes no line ends everywhere
        for (i = 1; i <= count; i++)
            if (split(line[i], word, " ") == 2) {
                feature[word[1]] = word[2]
                short = word[1]; sub(/[.].*/, "", short)  # as Slurm names hosts
                if (short in full) full[short] = ""; else full[short] = word[1]
            }
    }
    {
        name = available = active = ""
        for (i = 1; i <= NF; i++) {
            sub(/=[(]null[)]$/, "=", $i)
            if (sub(/^NodeName=/, "", $i)) name = $i
            if (sub(/^AvailableFeatures=/, "", $i)) available = $i
            if (sub(/^ActiveFeatures=/, "", $i)) active = $i
        }
        host = name in feature ? name : name in full ? full[name] : ""
        shown[host] = 1
        want = host == "" ? "-" : feature[host]
        now = changed(available, want); on = changed(active, want)
        if (want != "?" && now == available && on == active) next
        if (host == "") print "!", name
        else if (want != "?") print name, "AvailableFeatures=" now, "ActiveFeatures=" on
    }
    END {
        for (host in feature)
            if (!(host in shown)) print host
    }')
failed=0
while read -r node features; do
    case "$node,$features" in
    ,) ;;
    !,*) echo "features.sh: $features keeps its feature, because the plan has no such node." >&2 ;;
    *,)
        echo "features.sh: Slurm has no node $node. Use its name in Slurm in the inventory." >&2
        failed=1
        ;;
    *) # shellcheck disable=SC2086  # two words
        scontrol update NodeName="$node" $features </dev/null || failed=1
        ;;
    esac
done <<END
$changes
END
exit "$failed"
