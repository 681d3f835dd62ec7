#!/bin/sh
# Written by `fleetbuild emit slurm`. All nodes of a job are of one group, and run Python with the
# release that serves on the first one as the job starts, whatever is installed meanwhile:
#     sbatch job.sh train.py ARGUMENTS
# With a constraint of yours, name both: sbatch --constraint='ib&@FEATURE@' …
#SBATCH --constraint=@FEATURE@
: "${1:?Name a script of Python: sbatch job.sh train.py}"
release=$(readlink -f @CURRENT@) && exec srun "$release/bin/python" "$@"
