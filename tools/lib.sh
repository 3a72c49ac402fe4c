# Shared by the scripts of this folder: where things are, and a clock.
set -euo pipefail
strata_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
strata_deps=${STRATA_DEPS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/strata}
strata_jobs=${STRATA_JOBS:-$(nproc)}
strata_times=()

say() { printf '== %s\n' "$*"; }
die() { printf 'strata: %s\n' "$*" >&2; exit 1; }

# timed NAME COMMAND...: runs it and remembers how long it took.
timed() {
  local name=$1 begin status=0
  shift
  say "$name"
  begin=$(date +%s)
  "$@" || status=$?
  strata_times+=("$(printf '%6d s  %s' $(($(date +%s) - begin)) "$name")")
  [ "$status" -eq 0 ] || { print_times; die "'$name' failed with exit code $status: $*"; }
}

print_times() {
  say "where the time went"
  printf '%s\n' "${strata_times[@]}"
}

# The text of the main job: the King James Bible without verse numbers, from Debian's package bible-kjv.
make_text() {
  local out=$1
  [ -s "$out" ] && return 0
  mkdir -p "$(dirname "$out")"
  bible -f gen1:1-rev22:21 | sed 's/^[^ ]* //' > "$out.part"
  [ "$(wc -c < "$out.part")" -gt 3000000 ] || die "the package bible-kjv gave $(wc -c < "$out.part") bytes of text, expected over 3 MB"
  mv "$out.part" "$out"
}
