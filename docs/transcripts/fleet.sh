# Six recorded nodes of three kinds: what facts, plan and explain say of them.
# needs: index
# files: docs/transcripts/captures=captures docs/transcripts/inventory.yml=inventory.yml
## facts
fleetbuild facts inventory.yml --facts captures
## plan
fleetbuild plan inventory.yml --facts captures --package hnswlib==0.8.0
## explain
fleetbuild explain epyc-1 --facts captures #> | head -n 14
## exitcode
fleetbuild plan inventory.yml --facts captures --package hnswlib==0.8.0 --detailed-exitcode #> | tail -n 3; echo "exit code ${PIPESTATUS[0]}"
## k8s
fleetbuild emit labels --out manifests
cat manifests/labels.sh
