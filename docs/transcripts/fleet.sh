# Six recorded nodes of three kinds: what facts, plan and explain say of them.
# needs: index
# files: docs/transcripts/captures=captures docs/transcripts/inventory.yml=inventory.yml docs/transcripts/fewer.yml=fewer.yml
## facts
fleetbuild facts inventory.yml --facts captures
## plan
fleetbuild plan inventory.yml --facts captures --package hnswlib==0.8.0
## explain
fleetbuild explain epyc-1 --facts captures #> | head -n 8
## exitcode
fleetbuild plan inventory.yml --facts captures --package hnswlib==0.8.0 --detailed-exitcode #> | tail -n 2; echo "exit code ${PIPESTATUS[0]}"
## fewer
fleetbuild plan inventory.yml --facts captures --config fewer.yml #> | sed -n '/wheel sets/,/^$/p'
