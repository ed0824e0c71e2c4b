#!/bin/sh
# Runs the checks of lab/vm on real Debian kernels in small virtual machines.
# Installs qemu and fetches the kernels if it may (root, apt); says why it
# skips if not. Kernels are kept in $WHYLATE_VM_KERNELS, by default
# ~/.cache/whylate/kernels.
#
# usage: .ci/vm.sh [go test flags]
set -eu
cd "$(dirname "$0")/.."
: "${WHYLATE_VM_KERNELS:=${XDG_CACHE_HOME:-$HOME/.cache}/whylate/kernels}"
export WHYLATE_VM_KERNELS

skip() {
	echo "vm: skipped: $*" >&2
	exit 0
}

[ "$(uname -m)" = x86_64 ] || skip "the guests are for x86-64"

if ! command -v qemu-system-x86_64 >/dev/null; then
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || skip "qemu-system-x86_64 is missing, and only root on Debian can install it here"
	apt-get update -qq && apt-get install -y -qq --no-install-recommends qemu-system-x86 >/dev/null || skip "qemu-system-x86 cannot be installed"
fi

# One kernel before cpu.stat.local (Linux 6.6), one after. The newest of each
# series that the archive has now: exact versions leave it after some weeks.
mkdir -p "$WHYLATE_VM_KERNELS"
for series in '6\.1\.0-[0-9]+' '6\.12\.[0-9]+\+deb12'; do
	ls "$WHYLATE_VM_KERNELS" | grep -Eq "^vmlinuz-$series-cloud-amd64$" && continue
	command -v apt-get >/dev/null || skip "no kernel for $series, and no apt-get to fetch one"
	pkg=$(apt-cache search --names-only '^linux-image-6' | cut -d' ' -f1 | grep -E "^linux-image-$series-cloud-amd64$" | sort -V | tail -1)
	if [ -z "$pkg" ]; then
		apt-get update -qq || true
		pkg=$(apt-cache search --names-only '^linux-image-6' | cut -d' ' -f1 | grep -E "^linux-image-$series-cloud-amd64$" | sort -V | tail -1)
	fi
	[ -n "$pkg" ] || { echo "vm: no kernel package for $series here" >&2; continue; }
	tmp=$(mktemp -d)
	(cd "$tmp" && apt-get download -qq "$pkg" 2>/dev/null && dpkg -x ./*.deb x && cp x/boot/vmlinuz-* "$WHYLATE_VM_KERNELS/") ||
		echo "vm: $pkg could not be fetched" >&2
	rm -rf "$tmp"
done
ls "$WHYLATE_VM_KERNELS"/vmlinuz-* >/dev/null 2>&1 || skip "no kernel could be fetched"

WHYLATE_VM=1 exec go test -count=1 -timeout 30m -run TestVM "$@" ./lab/vm ./lab/limitscompare
