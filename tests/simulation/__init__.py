"""The engine on a virtual clock: thousands of schedules of faults in one process.

Read `schedules.py` first. A seed decides a fleet, the runs of two controllers, and what goes wrong
meanwhile; `rules.py` looks after each step whether the guarantees of docs/reliability.md hold. A
seed that fails is printed with the command that repeats it, in any process.

Real: planning (groups, drafts, plans, digests), all stages of an apply, rollout, waves, hooks,
rollback, failover of builds, journal, run lock, state directory, and on the nodes the whole module
`release` (leases, locks, the files of releases, the switch, damage, removal).

Stands in: the probe (facts are read from the node's folder), Ansible (each playbook is the list of
its tasks), indexes and the store, the audit, builds, the programs that a node starts (venv, uv,
a release's checks), the cluster's labels, and all clocks. Between two changes of a file a node may
restart, fill up, stand still, or lie; a controller may be killed, be interrupted or have a
full disk.

Not modelled: what the roles' YAML says and Ansible does with it; SSH; signatures; disks
that lose unflushed data; two modules on one node between two changes of a file; nodes that answer
with what the check of replies would refuse. tests/faults plays schedules on real nodes, and is the
check of this one.
"""
