# hnswlib for this machine, from an empty folder to a release.
# needs: index
## doctor (machine)
fleetbuild doctor
## init
fleetbuild init #> ; sed -i 's|^# *install:.*|install: {path: /home/ops/opt}|' fleetbuild.yml; grep -q '^install' fleetbuild.yml || echo 'install: {path: /home/ops/opt}' >> fleetbuild.yml; sed -i "s|/home/ops/opt|$HOME/opt|" fleetbuild.yml
## facts (machine)
fleetbuild facts inventory.yml
## plan
fleetbuild plan inventory.yml
## apply (long)
fleetbuild apply #> | grep -v 'so far\|fetch\|answered\|whl audited\|auditing\|: building'
## use
~/opt/current/bin/fleetbuild-sanity
## status
fleetbuild status inventory.yml
