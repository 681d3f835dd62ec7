# hnswlib on the six nodes of `make lab LAB=book`: apply, status, upgrade, rollback, remove.
# Lines that only a slow machine prints are left out.
# needs: lab index
## apply
fleetbuild plan inventory.yml --package hnswlib==0.8.0 #> > plan.txt
fleetbuild apply #> | grep -v "so far\|no answer\|answered\|fetch\|in the group\|whl audited\|installing on\|: building"
## again
fleetbuild apply #> | grep -v "answered"
## status
fleetbuild status inventory.yml
## upgrade
fleetbuild apply inventory.yml --package hnswlib==0.7.0 --yes #> | tail -n 3
## rollback
fleetbuild rollback inventory.yml --yes #> | grep "^rolled\|^Done"
## verify
fleetbuild verify inventory.yml #> | grep "^Done"
## remove
fleetbuild remove inventory.yml --yes #> | grep -v answered
