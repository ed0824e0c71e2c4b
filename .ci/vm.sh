#!/bin/bash
# Runs the checks of lab/vm on real Debian kernels in small virtual machines.
# Installs qemu and fetches the kernels if it may (root, apt); if not, it says
# why nothing is proved, with status 3. Kernels are kept in $WHYLATE_VM_KERNELS, by default
# ~/.cache/whylate/kernels, each with the module that makes disks in memory, which
# the page cache of lab/maxprocs/cases needs. With WHYLATE_VM_NEWEST=1 only the newest is booted.
#
# usage: .ci/vm.sh [go test flags]
#        .ci/vm.sh kernels    only fetches them, and prints their directory
set -eu
cd "$(dirname "$0")/.."
: "${WHYLATE_VM_KERNELS:=${XDG_CACHE_HOME:-$HOME/.cache}/whylate/kernels}"
export WHYLATE_VM_KERNELS

skip() {
	echo "not proved: $*" >&2
	exit 3
}

[ "$(uname -m)" = x86_64 ] || skip "the guests are for x86-64"

if ! command -v qemu-system-x86_64 >/dev/null; then
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || skip "qemu-system-x86_64 is missing, and only root on Debian can install it here"
	apt-get update -qq && apt-get install -y -qq --no-install-recommends qemu-system-x86 >/dev/null || skip "qemu-system-x86 cannot be installed"
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$WHYLATE_VM_KERNELS"

# take PACKAGE... [-- APT OPTION...]: unpacks them and keeps the kernel and its module.
take() {
	local packages=() release
	while [ $# -gt 0 ] && [ "$1" != -- ]; do packages+=("$1"); shift; done
	[ $# -eq 0 ] || shift
	rm -rf "$tmp/x" "$tmp/debs" && mkdir -p "$tmp/debs"
	(cd "$tmp/debs" && apt-get download -qq "$@" "${packages[@]}" 2>/dev/null && for f in *.deb; do dpkg -x "$f" "$tmp/x"; done) || return
	local image module
	image=$(find "$tmp/x" -name 'vmlinuz*' -type f | head -1)
	[ -n "$image" ] || return
	case $image in
	*/vmlinuz) release=$(basename "$(dirname "$image")") ;;
	*) release=${image##*/vmlinuz-} ;;
	esac
	module=$(find "$tmp/x" -name 'brd.ko*' | head -1)
	case $module in
	*.xz) xz -dc "$module" >"$WHYLATE_VM_KERNELS/brd-$release.ko" ;;
	*.ko) cp "$module" "$WHYLATE_VM_KERNELS/brd-$release.ko" ;;
	esac
	cp "$image" "$WHYLATE_VM_KERNELS/vmlinuz-$release"
}

have() { ls "$WHYLATE_VM_KERNELS" | grep -Eq "^vmlinuz-$1-cloud-amd64$"; }

# One kernel before cpu.stat.local (Linux 6.6), one after. The newest of each
# series that the archive has now: exact versions leave it after some weeks.
for series in '6\.1\.0-[0-9]+' '6\.12\.[0-9]+\+deb12'; do
	have "$series" && continue
	command -v apt-get >/dev/null || skip "no kernel for $series, and no apt-get to fetch one"
	newest() { apt-cache search --names-only '^linux-image-6' | cut -d' ' -f1 | grep -E "^linux-image-$series-cloud-amd64$" | sort -V | tail -1 || true; }
	pkg=$(newest)
	if [ -z "$pkg" ]; then
		apt-get update -qq || true
		pkg=$(newest)
	fi
	[ -n "$pkg" ] || { echo "vm: no kernel package for $series here" >&2; continue; }
	take "$pkg" || echo "vm: $pkg could not be fetched" >&2
done

# And the newest that Debian has, from the backports of its stable release, which
# need not be this machine's: its lists are read into a directory of their own.
if ! have '[7-9]\..*' && command -v apt-get >/dev/null; then
	echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie-backports main' >"$tmp/sources.list"
	mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial"
	o=(-o Dir::Etc::SourceList="$tmp/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$tmp/lists" -o Dir::Cache="$tmp/cache" -o Acquire::Languages=none -o APT::Sandbox::User=root)
	apt-get update -qq "${o[@]}" || true
	release=$(apt-cache "${o[@]}" search --names-only '^linux-binary-[0-9].*-cloud-amd64$' | cut -d' ' -f1 | grep -v unsigned | sed 's/^linux-binary-//' | sort -V | tail -1 || true)
	if [ -n "$release" ]; then
		take "linux-binary-$release" "linux-modules-$release" -- "${o[@]}" || echo "vm: Linux $release could not be fetched" >&2
	else
		echo "vm: no newer kernel in the backports" >&2
	fi
fi
ls "$WHYLATE_VM_KERNELS"/vmlinuz-* >/dev/null 2>&1 || skip "no kernel could be fetched"

if [ -n "${WHYLATE_VM_NEWEST:-}" ]; then
	image=$(ls "$WHYLATE_VM_KERNELS"/vmlinuz-* | sort -V | tail -1)
	rm -rf "$WHYLATE_VM_KERNELS/newest" && mkdir "$WHYLATE_VM_KERNELS/newest"
	ln -s "$image" "${image/vmlinuz-/brd-}.ko" "$WHYLATE_VM_KERNELS/newest"
	WHYLATE_VM_KERNELS=$WHYLATE_VM_KERNELS/newest
fi

if [ "${1:-}" = kernels ]; then
	echo "$WHYLATE_VM_KERNELS"
	exit
fi
WHYLATE_VM=1 go test -count=1 -timeout 60m -run TestVM "$@" ./lab/vm ./lab/limitscompare
