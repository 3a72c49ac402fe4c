#!/usr/bin/env bash
# The speed of `strata` beside PyTorch, in one run: the same GPT-2 shapes, alternating, medians of the rounds' medians.
#
#   bash bench/compare_pytorch.sh [ROUNDS]     default 3
#
# Installs PyTorch 2.15.0 with its dependencies (5 GB) in a scratch environment in the set-up's folder, or uses the one that
# STRATA_PYTORCH_VENV names. Needs the release build. Two ranks, one thread each; "one process" is one rank with two threads on
# the whole batch. The targets are those of docs/BENCHMARKS.md.
source "$(dirname "${BASH_SOURCE[0]}")/../tools/lib.sh"
cd "$strata_root"
rounds=${1:-3}
steps=${STRATA_BENCH_STEPS:-8}
venv=${STRATA_PYTORCH_VENV:-$strata_deps/pytorch-2.15.0}
strata=build/release/bin/strata
[ -x "$strata" ] || die "$strata is not there. HINT: cmake --preset release && cmake --build --preset release"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

install_pytorch() {
  [ -x "$venv/bin/torchrun" ] && { echo "$venv is there"; return 0; }
  python3 -m venv "$venv" && "$venv/bin/pip" install --quiet torch==2.15.0 numpy
}

# ours NAME STRATEGY DEVICES THREADS BATCH: one JSON line a round into $out/NAME.
ours() {
  OMP_NUM_THREADS=$4 "$strata" bench step --model "$config" --strategy "$2" --devices "$3" --sequence-length 128 \
    --per-device-train-batch-size "$5" --max-steps "$steps" --skip-steps 2 >> "$out/$1"
}

# theirs NAME STRATEGY RANKS THREADS BATCH
theirs() {
  local run=("$venv/bin/python")
  [ "$3" -eq 1 ] || run=("$venv/bin/torchrun" --nproc-per-node "$3" --master-port 0 --rdzv-backend c10d --rdzv-endpoint localhost:0)
  BENCH_STARTED=$(date +%s.%N) OMP_NUM_THREADS=$4 "${run[@]}" bench/pytorch_step.py --strategy "$2" --layers "$layers" \
    --width "$width" --heads 8 --vocab "$vocab" --length 128 --batch "$5" --steps "$steps" --skip 2 --threads "$4" \
    2>> "$out/errors" | grep '^{' >> "$out/$1"
}

report() {
  python3 - "$out" <<'PYTHON'
import json, pathlib, statistics, sys
out = pathlib.Path(sys.argv[1])
ms = {}
for name in ["ddp", "pytorch_ddp", "fsdp", "fsdp2", "one", "pytorch_one"]:
    path = out / name
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if lines:
        ms[name] = statistics.median(line["median_ms"] for line in lines)
        print(f"  {name:12} {ms[name]:9.1f} ms")
for a, b, target in [("ddp", "pytorch_ddp", 0.84), ("fsdp", "fsdp2", 0.62), ("ddp", "one", 1.06), ("fsdp", "one", 1.06),
                     ("one", "pytorch_one", 0.95)]:
    if a in ms and b in ms:
        print(f"  {a} / {b} = {ms[a] / ms[b]:.3f} (target {target})")
PYTHON
}

compare() {
  rm -f "$out"/*
  for _ in $(seq "$rounds"); do
    ours ddp ddp 2 1 4
    theirs pytorch_ddp ddp 2 1 4
    ours fsdp fsdp 2 1 4
    theirs fsdp2 fsdp2 2 1 4
    ours one single 1 2 8
    theirs pytorch_one single 1 2 8
  done
  report
}

timed "PyTorch 2.15.0" install_pytorch
config=bench/configs/gpt2-12x512.json layers=12 width=512 vocab=16384
timed "layers 12, width 512, vocabulary 16384" compare
config=bench/configs/gpt2-4x256.json layers=4 width=256 vocab=8192
timed "layers 4, width 256, vocabulary 8192" compare
print_times
