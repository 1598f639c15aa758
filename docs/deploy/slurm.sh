#!/usr/bin/env bash
# Workers on the nodes of a Slurm job, one on each: sbatch --nodes=8 slurm.sh
#SBATCH --job-name=gangline-workers
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --time=04:00:00
# Slurm sends SIGTERM to the workers this many seconds before the time is over: they finish what they have begun.
#SBATCH --signal=TERM@300
set -euo pipefail

# With GANGLINE_NATS=... and what else a worker needs, readable by you alone.
set -a
source "${WORKER_ENV:-$HOME/.config/gangline/worker.env}"
set +a

# From Slurm 22.05 on, srun gives a task one core unless it is told.
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
# A worker that crashes is started again, and leaves the others alone. It sees the GPUs that Slurm has given to its task.
exec srun --kill-on-bad-exit=0 gangline worker -- "${APP:-$HOME/app}"
