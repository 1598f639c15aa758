#!/usr/bin/env bash
# Runs everything that the example `gpu` checks and measures, and puts what it says into one folder:
#
#   examples/candle/gpu/run-all.sh [--program target/release/examples/gpu] [--gangline target/release/gangline]
#                           [--devices cuda:0] [--size base] [--seconds 4] [--items 512]
#                           [--python python3] [--part NAME]... [--limit SECONDS] OUT
#
# A part that fails, or takes longer than the limit, is named at the end, and the others go on. PyTorch's own copies of
# CUDA's libraries are found where there is no toolkit. Exit status: the number of parts that failed.
set -uo pipefail

program=target/release/examples/gpu gangline='' devices=cuda:0 size='' seconds=4 items=512 python='' limit=0 out=''
only=()
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; }
while (($#)); do
    case $1 in
        --program | --gangline | --devices | --size | --seconds | --items | --python | --part | --limit)
            (($# > 1)) || { echo "$1 needs a value" >&2; exit 64; }
            if [[ $1 == --part ]]; then only+=("$2"); else printf -v "${1#--}" %s "$2"; fi
            shift 2
            ;;
        -h | --help) usage; exit 0 ;;
        -*) echo "$1 is no option" >&2; usage >&2; exit 64 ;;
        *) [[ -z $out ]] || { usage >&2; exit 64; }; out=$1; shift ;;
    esac
done
[[ -n $out ]] || { usage >&2; exit 64; }
mkdir -p "$out"
options=(--devices "$devices")
[[ -z $size ]] || options+=(--size "$size")
measures=(--seconds "$seconds" --items "$items")
run=("$program")
[[ $limit == 0 ]] || run=(timeout --kill-after=10 "$limit" "$program")
precisions=(tf32 f32 f16 bf16)
if [[ $devices == *cuda* ]]; then
    options+=(--require-cuda)
else
    precisions=(f32)
fi

failed=()
# Runs a command as the part of this name; what it prints goes to a file too.
part() {
    local name=$1
    shift
    if ((${#only[@]})) && [[ " ${only[*]} " != *" $name "* ]]; then return; fi
    printf '\n== %s (after %d s)\n' "$name" "$SECONDS"
    if ! "$@" 2>&1 | tee "$out/$name.txt"; then failed+=("$name"); fi
}
machine() {
    uname -srm
    grep -m1 'model name' /proc/cpuinfo
    nproc
    free -g
    df -h . /tmp /dev/shm
    echo "HOME=${HOME-} LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}"
    libraries
    if [[ $devices == *cuda* ]]; then nvidia-smi && nvidia-smi -L; fi
    if [[ -n $python ]]; then "$python" -c 'import torch; print("torch", torch.__version__, torch.version.cuda)'; fi
}
# Which of the libraries that the program opens are found, and where.
libraries() {
    local name folders
    IFS=: read -ra folders <<<"${LD_LIBRARY_PATH-}:/usr/local/cuda/lib64:/usr/local/nvidia/lib64"
    for name in libcuda.so.1 libnvidia-ml.so.1 libcublas.so.13 libcublasLt.so.13 libcurand.so.10 libnvrtc.so.13; do
        echo "$name:"
        ldconfig -p 2>/dev/null | sed -n "s|.*$name .*=> |  |p"
        find "${folders[@]}" -maxdepth 1 -name "$name" -printf '  %p\n' 2>/dev/null
    done
}
# The first GPU by its UUID, which the program then has to call cuda:0. A small network does for that.
by_uuid() {
    local uuid
    uuid=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | head -n 1) || return
    CUDA_VISIBLE_DEVICES=$uuid "${run[@]}" check --devices cuda:0 --require-cuda --size "${size:-small}"
}
# Each of the other examples that was built beside the program, on the GPU.
example() {
    local name=$1
    shift
    [[ ! -x ${program%/*}/$name ]] || part "$name" "${program%/*}/$name" "$@"
}
# What the driver says of the GPUs, also to a process that sees one by its UUID only.
show_devices() {
    "$gangline" devices && "$gangline" devices --json || return
    local uuid
    uuid=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | head -n 1) || return
    CUDA_VISIBLE_DEVICES=$uuid "$gangline" devices || return
    # By the first characters of its UUID, and by its id where the variable names it by UUID.
    "$gangline" run --gpu-list "${uuid:0:12}" -- sh -c 'echo "$1 of $CUDA_VISIBLE_DEVICES"' sh {gpu} {} ::: 1 || return
    CUDA_VISIBLE_DEVICES=$uuid "$gangline" run --gpu-list 0 -- sh -c 'echo "$1 of $CUDA_VISIBLE_DEVICES"' sh {gpu} {} ::: 1
}
# A second program is refused a locked GPU, and gets it once the first has ended.
locks() {
    local dir status=0
    dir=$(mktemp -d) && mkfifo "$dir/locked" "$dir/go" || return
    local lock=(--gpu-list 0 --lock-dir "$dir")
    "$gangline" run "${lock[@]}" --lock-gpus -- sh -c 'echo >"$1/locked"; read -r _ <"$1/go"' sh ::: "$dir" &
    read -r _ <"$dir/locked"
    if "$gangline" run "${lock[@]}" --lock-gpus -- echo ::: refused; then echo 'a locked GPU was given away'; status=1; fi
    "$gangline" run "${lock[@]}" --lock-gpus=wait -- echo ::: waited &
    echo >"$dir/go"
    wait %1 && wait %2 || status=1
    rm -r "$dir"
    return "$status"
}
# A worker in Python that holds the GPU. Its sums are cubes, so a wrong one is found.
warm() {
    local said
    said=$(seq 1 100 | "$gangline" run --warm --gpu-list 0 --report "$out/warm.html" -- "$python" examples/candle/gpu/torch_worker.py) || return
    head -n 1 <<<"$said"
    "$python" -c 'import json, sys
said = [json.loads(line) for line in sys.stdin]
sums = [(one["n"], one["sum"]) for one in said]
assert sums == [(n, n ** 3) for n in range(1, 101)], sums
assert all(one["count"] == 1 for one in said), said
print(len(said), "sums are right")' <<<"$said"
}
if [[ -n $python ]]; then
    wheels=$("$python" -c 'import glob, nvidia
print(*(lib for path in nvidia.__path__ for lib in glob.glob(path + "/cu[0-9]*/lib")), sep=":")' 2>&-)
    [[ -z $wheels ]] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$wheels"
fi

part machine machine
if [[ -n $gangline && $devices == *cuda* ]]; then
    part devices show_devices
    part locks locks
    [[ -z $python ]] || part warm warm
fi
part check "${run[@]}" check "${options[@]}"
[[ $devices != *cuda* ]] || part check-by-uuid by_uuid
example digits --devices "$devices"
example nn_predictor --devices "$devices,cpu"
example embed --devices "$devices*2" --items 512
for network in bert conv; do
    for precision in "${precisions[@]}"; do
        name=$network-$precision
        measured=(--network "$network" --precision "$precision" --json "$out/$name.json" --report "$out/$name.html")
        # Items of a network are the same in all precisions, so PyTorch's own figures are, too, but for their speed.
        [[ -z $python ]] || measured+=(--python "$python")
        part "$name" "${run[@]}" measure "${options[@]}" "${measures[@]}" "${measured[@]}"
    done
done

printf '\n'
if ((${#failed[@]})); then echo "failed: ${failed[*]}"; else echo "all parts passed: $out"; fi
exit "${#failed[@]}"
