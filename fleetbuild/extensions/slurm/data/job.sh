#!/bin/sh
# Written by `fleetbuild emit slurm`. Each node runs Python with its own release:
#     sbatch job.sh train.py ARGUMENTS
# The nodes of one job are of one group: of any group below, or of the one that you leave. For GPUs
# add your site's option, such as --gpus-per-node=1. The link is read once: a job keeps its release
# while another one is installed.
#SBATCH --constraint=@FEATURE@
exec srun sh -c 'exec "$(readlink -f "$0")/bin/python" "$@"' @CURRENT@ "$@"
