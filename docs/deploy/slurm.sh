#!/usr/bin/env bash
# The commands of a file, one on each line, on all nodes of a Slurm job: sbatch --nodes=8 slurm.sh commands.txt
#SBATCH --job-name=gangline
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --time=04:00:00
# Slurm sends SIGTERM this many seconds before the time is over: jobs that run are finished, and no other starts.
#SBATCH --signal=B:TERM@300
set -euo pipefail

# From Slurm 22.05 on, srun gives a task one core unless it is told.
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
# The first node has the broker and the log. Each node has a worker, with the GPUs that Slurm has given to its task; it is
# started again if it crashes. What was done is left out if the same job is submitted again.
exec gangline run --broker auto --wait-for 10m --retries 1 --journal "$1.journal" --resume \
    --start-workers 'srun --kill-on-bad-exit=0 gangline worker --serve commands' --job-file "$1"
