"""`python -m benchmarks`: run them all and add a run to docs/evidence/probe.json."""

from benchmarks.probe import main

main()
