#!/usr/bin/env bash
# The first run: sets up, builds, trains GPT-2 on the King James Bible with a strategy from a shared library, and shows that
# strategies differ in memory and traffic only.
#
#   bash tools/demo.sh
#
# Needs a stock Debian 12 with root or sudo. Everything it makes lies in build/ of this folder, but for LibTorch (see
# tools/setup.sh). Works when run twice.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$strata_root"

strata=build/release/bin/strata
demo=build/demo
text=$demo/kjv.txt

train() { "$strata" train --model configs/gpt2-small-demo.json --data "$text" --devices 2 "$@"; }

main_job() {
  rm -rf "$demo/run"
  train --strategy fsdp --sequence-length 128 --per-device-train-batch-size 4 --max-steps "${STRATA_DEMO_STEPS:-500}" \
    --learning-rate 1e-3 --warmup-steps 40 --lr-scheduler-type cosine --save-steps 250 --output-dir "$demo/run"
}

sample() {
  "$strata" generate --checkpoint "$demo/run/latest" --prompt "And God said" --max-new-tokens 60 --temperature 0.8 --top-k 40 --seed 1
}

# The same 20 steps under each strategy; `single` takes both ranks' batches on one.
compare() {
  "$strata" bench strategies --model configs/gpt2-small-demo.json --data "$text" --tokenizer "$demo/run/latest" \
    --sequence-length 128 --global-batch-size 8 --max-steps 20 --devices 2 --strategies single,ddp,fsdp \
    --output-dir "$demo/compare"
}

timed "set-up" bash tools/setup.sh
timed "configure" cmake --preset release -DSTRATA_TESTS=OFF --log-level=NOTICE
timed "build" cmake --build --preset release -j "$strata_jobs" -- --quiet
timed "text: the King James Bible" make_text "$text"
timed "main job: GPT-2 under fsdp on two ranks" main_job
timed "a sample from the checkpoint, on one rank" sample
timed "the same 20 steps under single, ddp and fsdp" compare
print_times
