# Recorded machines with GPUs: the plan for torch. Its source is not fetched here, so the output ends before the lock.
# needs: index
# files: tests/unit/data/fleet=captures tests/unit/data/fleet.yml=inventory.yml
## facts
fleetbuild facts inventory.yml --facts captures
## plan
fleetbuild plan inventory.yml --facts captures --package torch==2.13.0 #> | sed -n '1,2p;/+ sm86-avx-cp311/,/install/p'
