"""Parts that several tests use: plans, fleets, files on disk, and stand-ins for a cluster.

data       the captured fleets and schemas in tests/unit/data, read once
fleets     facts, inventories, packages, and drafts and plans that the planner makes of them
plans      plans put together by hand: target, wheel, group, plan
runs       an apply without SSH, Ansible or a network: nodes that do what the test says
inventories  what Ansible reads, read once
delivery, hardware_classes, schemas   for tests of manifests
role_modules  modules of roles, imported as Ansible does
files      wheels, sdists, repositories and stores on disk
elf        ELF files and fat binaries, byte by byte
cluster_api, real_api        the Kubernetes API: a stand-in, and a real server, if one is installed
nfd_worker, nfd_master, scheduler   what those programs make of a node, of rules, of a pod
"""
