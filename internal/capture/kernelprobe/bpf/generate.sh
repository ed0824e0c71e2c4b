#!/bin/bash
# Compiles the programs for each architecture. With another version of clang the bytes differ, and mean the same.
#
# usage: generate.sh [DIR]   writes to DIR instead of this directory
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-.}
for arch in amd64:x86 arm64:arm64; do
	object=$out/probe_${arch%%:*}.o
	clang-14 -O2 -g -target bpf -mcpu=v2 -D__TARGET_ARCH_"${arch##*:}" -Wall -Werror -fdebug-compilation-dir=. -c probe.bpf.c -o "$object"
	llvm-strip-14 -g "$object"
done
sha256sum kernel.h probe.bpf.c >"$out/source.sha256"
