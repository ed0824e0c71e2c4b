#!/bin/sh
# Compiles uprobes.bpf.c. Needs clang 14, llvm-strip and the headers of libbpf.
set -e
cd "$(dirname "$0")"
clang-14 -O2 -g -target bpf -mcpu=v3 -Wall -fdebug-compilation-dir=. -c uprobes.bpf.c -o "${1:-uprobes.bpf.o}"
llvm-strip -g "${1:-uprobes.bpf.o}"
