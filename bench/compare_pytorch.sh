#!/usr/bin/env bash
# Measures training steps of Strata beside PyTorch's on this machine and prints the ratios with their targets.
#
#   bash bench/compare_pytorch.sh [--rounds 3] [--steps 8] [--skip 2] [--model gpt2-12x512]... [--output FILE.json]
#
# Needs two cores that nobody else uses. Builds the release preset's command and the plain LibTorch loop. PyTorch goes into
# $STRATA_DEPS_DIR/pytorch-2.15.0 (default: ~/.cache/strata) and is reused; STRATA_PYTORCH_VENV names a venv that has it already;
# STRATA_BENCH_BUILD names another build folder than build/release.
source "$(dirname "${BASH_SOURCE[0]}")/../tools/lib.sh"

version=2.15.0
venv=${STRATA_PYTORCH_VENV:-$strata_deps/pytorch-$version}
build=${STRATA_BENCH_BUILD:-$strata_root/build/release}

has_pytorch() { [ "$("$venv/bin/python" -c 'import numpy, torch; print(torch.__version__.split("+")[0])' 2> /dev/null)" = "$version" ]; }

install_pytorch() {
  if has_pytorch; then
    echo "$venv has it"
    return 0
  fi
  [ -z "${STRATA_PYTORCH_VENV:-}" ] || die "STRATA_PYTORCH_VENV=$venv has no PyTorch $version with numpy. HINT: unset it"
  python3 -m venv "$venv" &&
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "torch==$version" numpy && has_pytorch
}

build_programs() {
  if [ ! -f "$build/build.ninja" ]; then
    cmake -G Ninja -S "$strata_root" -B "$build" -DCMAKE_BUILD_TYPE=Release > /dev/null || return
  fi
  cmake --build "$build" -j "$strata_jobs" --target strata strata_bench_libtorch_loop
}

timed "PyTorch $version" install_pytorch
timed "building" build_programs
"$venv/bin/python" "$strata_root/bench/compare_pytorch.py" --build "$build" --venv "$venv" "$@"
