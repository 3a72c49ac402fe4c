#!/usr/bin/env bash
# Installs what Strata needs on Debian 12: Debian packages, and the LibTorch wheels, pinned and checked by hash.
#
#   bash tools/setup.sh [--libtorch 2.15.0]... [--tests]
#
# LibTorch goes to $STRATA_DEPS_DIR/libtorch-VERSION (default: ~/.cache/strata) and is reused if present. --tests also installs
# what only tests need: Debian packages, and the Python packages that they compare with. Works when run twice; needs root or
# sudo only if a Debian package is missing.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

versions=()
with_tests=0
while [ $# -gt 0 ]; do
  case $1 in
    --libtorch) [ $# -gt 1 ] || die "--libtorch needs a version"; versions+=("$2"); shift 2 ;;
    --tests) with_tests=1; shift ;;
    *) die "unknown option '$1'. HINT: bash tools/setup.sh [--libtorch VERSION]... [--tests]" ;;
  esac
done
[ ${#versions[@]} -gt 0 ] || versions=(2.15.0)
for version in "${versions[@]}"; do
  [ -f "$strata_root/tools/libtorch-$version.txt" ] ||
    die "LibTorch $version is not among the pinned versions: $(cd "$strata_root/tools" && ls libtorch-*.txt | sed 's/libtorch-\(.*\).txt/\1/' | xargs)"
done

# install_debian_packages LIST...: those packages of the lists that are not there.
install_debian_packages() {
  local missing=()
  for package in $(grep -hv '^#' "$@"); do
    dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || { echo "all there"; return 0; }
  echo "installing: ${missing[*]}"
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo > /dev/null || die "needs root or sudo to install: ${missing[*]}"
    sudo=(sudo)
  fi
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
}

# install_wheels NAME REQUIREMENTS: into $strata_deps/NAME, whole or not at all.
install_wheels() {
  local target=$strata_deps/$1 requirements=$2
  if [ -f "$target/.requirements" ] && cmp -s "$target/.requirements" "$requirements"; then
    echo "$target is there"
    return 0
  fi
  mkdir -p "$strata_deps"
  local part
  part=$(mktemp -d "$strata_deps/.part.XXXXXX")
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile --require-hashes \
    --only-binary=:all: --python-version 3.11 --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 \
    --platform manylinux2014_x86_64 --target "$part" -r "$requirements" || { rm -rf "$part"; return 1; }
  cp "$requirements" "$part/.requirements"
  rm -rf "$target"
  mv "$part" "$target"
}

debian_lists=("$strata_root/tools/debian-packages.txt")
[ "$with_tests" -eq 0 ] || debian_lists+=("$strata_root/tools/debian-packages-tests.txt")
timed "Debian packages" install_debian_packages "${debian_lists[@]}"
for version in "${versions[@]}"; do
  timed "LibTorch $version" install_wheels "libtorch-$version" "$strata_root/tools/libtorch-$version.txt"
done
if [ "$with_tests" -eq 1 ]; then
  timed "Python packages of the tests" install_wheels test-packages "$strata_root/tools/test-packages.txt"
fi
