"""`python -m benchmarks`: run them all and write docs/benchmarks.md."""

from benchmarks.probe import main

main()
