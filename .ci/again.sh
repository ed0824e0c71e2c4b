#!/bin/bash
# Runs tests again that failed, each package alone and at most twice. Real
# programs under real limits are judged by real clocks here, and a machine that
# others share can be too busy for any of them. What then passes is told as
# shaky, to be mended; a data race, a panic, a time-out, a package that does not
# build or more than four failed tests are no such thing and stay failures.
#
# usage: .ci/again.sh OUTPUT COMMAND
#
# COMMAND is go test with its flags, or what takes its arguments; OUTPUT is what
# it printed. That is rewritten to what holds in the end.
set -euo pipefail
output=$1
shift

if grep -qE '^(panic:|fatal error:|SIG[A-Z]+:)|WARNING: DATA RACE|test timed out after|^FAIL.*\[(build|setup) failed\]' "$output"; then
	exit 1
fi
# Names come before the line of their package. TestMain alone may fail a package
# without one.
mapfile -t failed < <(awk '
	/^--- FAIL: / { names = names (names == "" ? "" : "|") $3; next }
	/^ok  \t/ { names = "" }
	/^FAIL\t/ { print (names == "" ? "?" : names) " " $2; names = "" }
' "$output")
all="${failed[*]%% *}"
[ "${#failed[@]}" -gt 0 ] || exit 1
case $all in *\?*) exit 1 ;; esac
[ "$(tr '| ' '\n\n' <<<"$all" | grep -c .)" -le 4 ] || exit 1

again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
for line in "${failed[@]}"; do
	names=${line%% *} pkg=${line#* }
	for try in 2 3; do
		echo "again, alone: $names in $pkg, try $try of 3"
		if "$@" -count=1 -run "^($names)\$" "$pkg" >"$again/out" 2>&1; then
			sed -i -E "s#^FAIL\t$pkg\t(.*)#ok  \t$pkg\t\1 (shaky: $names passed at try $try of 3, alone)#" "$output"
			continue 2
		fi
		cat "$again/out"
		! grep -qE '^(panic:|fatal error:)|WARNING: DATA RACE' "$again/out" || exit 1
	done
	exit 1
done
# What the first try said stays, marked as what it is.
sed -i -E 's/^(--- FAIL: |FAIL$)/(shaky) \1/' "$output"
