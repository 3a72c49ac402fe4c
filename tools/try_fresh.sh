#!/usr/bin/env bash
# Proves that a newcomer's machine is enough: makes a bare Debian 12 root with debootstrap, clones this repository's HEAD into
# it, and runs tools/demo.sh and tools/check.sh there. Run by hand, as root; takes the time of two builds and 6 GB.
#
#   bash tools/try_fresh.sh [--keep] [demo|check]...     default: both
#
# The root gets this machine's way to its package registries (apt and pip configuration, certificates) and nothing else.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

keep=0
scripts=()
for argument in "$@"; do
  case $argument in
    --keep) keep=1 ;;
    demo | check) scripts+=("$argument") ;;
    *) die "unknown argument '$argument'. HINT: bash tools/try_fresh.sh [--keep] [demo|check]..." ;;
  esac
done
[ ${#scripts[@]} -gt 0 ] || scripts=(demo check)
[ "$(id -u)" -eq 0 ] || die "needs root, for debootstrap and chroot"
command -v debootstrap > /dev/null || die "needs the Debian package debootstrap"

root=$(mktemp -d "${TMPDIR:-/tmp}/strata-fresh.XXXXXX")
clean_up() {
  local mounted
  for mounted in "$root/proc" "$root/dev"; do
    if mountpoint -q "$mounted"; then umount -R "$mounted" || die "cannot unmount $mounted; $root stays"; fi
  done
  if [ "$keep" -eq 1 ]; then say "kept: $root"; else rm -rf --one-file-system "$root"; fi
}
trap clean_up EXIT

make_root() {
  local mirror
  mirror=$(grep -rhoE 'https?://[^ ]+debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2> /dev/null | head -n 1 | tr -d ' ')
  [ -n "$mirror" ] || mirror=$(awk '/^URIs:/ {print $2; exit}' /etc/apt/sources.list.d/*.sources)
  debootstrap --variant=minbase bookworm "$root" "$mirror" > "$root.log" 2>&1 || { tail -n 5 "$root.log"; return 1; }
  rm -f "$root.log"
  cp -a /etc/apt/. "$root/etc/apt/" && cp -aL /etc/resolv.conf /etc/hosts "$root/etc/" || return 1
  mkdir -p "$root/etc/ssl" && cp -aL /etc/ssl/certs "$root/etc/ssl/" 2> /dev/null || true
  # Local authorities, so that installing ca-certificates in there keeps them.
  mkdir -p "$root/usr/local/share" && cp -aL /usr/local/share/ca-certificates "$root/usr/local/share/" 2> /dev/null || true
  [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
  mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
    mount --make-rslave "$root/dev" # or unmounting it later would unmount this machine's
}

clone_into_root() {
  mkdir -p "$root/home/new"
  git -C "$strata_root" archive --format=tar --prefix=strata/ HEAD | tar -x -C "$root/home/new"
}

in_root() {
  env -i HOME=/home/new PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    $(env | grep -E '^(PIP_|https?_proxy=|HTTPS?_PROXY=|no_proxy=|NO_PROXY=)' | grep -v '^PIP_FIND_LINKS' | xargs -r -n1 echo) \
    chroot "$root" bash -c "cd /home/new/strata && $1"
}

timed "a bare Debian 12 root" make_root
timed "a fresh copy of HEAD" clone_into_root
for script in "${scripts[@]}"; do
  timed "tools/$script.sh in it" in_root "bash tools/$script.sh"
done
print_times
