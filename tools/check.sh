#!/usr/bin/env bash
# Sets up, builds and runs all tests; the LibTorch-facing unit tests of core/model and core/hooks also with the oldest LibTorch.
#
#   bash tools/check.sh [--libtorch VERSION]   VERSION: build and run everything with it (default 2.15.0)
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

default=2.15.0
oldest=2.11.0
version=$default
case "${1:-}" in
  "") ;;
  --libtorch) version=${2:?--libtorch needs a version} ;;
  *) die "unknown option '$1'. HINT: bash tools/check.sh [--libtorch VERSION]" ;;
esac
preset=release
[ "$version" = "$default" ] || preset=oldest
cd "$strata_root"

# Each script that is called prints its own times, so their sums appear once here.
timed "set-up" bash tools/setup.sh --tests --libtorch "$version" --libtorch "$oldest"
timed "configure ($preset)" cmake --preset "$preset" -DSTRATA_LIBTORCH_VERSION="$version" -DSTRATA_TESTS=ON --log-level=NOTICE
timed "build ($preset)" cmake --build --preset "$preset" -j "$strata_jobs" -- --quiet
timed "tests ($preset)" ctest --preset "$preset" -j "$strata_jobs"
if [ "$preset" = release ]; then
  timed "configure (oldest LibTorch)" cmake --preset oldest -DSTRATA_TESTS=ON --log-level=NOTICE
  timed "build the LibTorch-facing tests (oldest LibTorch)" \
    cmake --build --preset oldest -j "$strata_jobs" --target strata_libtorch_tests -- --quiet
  timed "LibTorch-facing tests (oldest LibTorch)" ctest --preset oldest -L libtorch -j "$strata_jobs"
fi
print_times
