#!/bin/bash
# Writes what run.sh found as Markdown.
#
# usage: summary.sh DIRECTORY
set -euo pipefail
cd "$1"

# Names come from the trace and may hold anything: between <pre> and </pre>, Markdown is not read, and tags are escaped. A comment
# holds 65,536 characters, so that each part is cut.
part() {
	[ -s "$2" ] || return 0
	printf '\n<details%s><summary>%s</summary>\n\n<pre>\n' "$3" "$1"
	head -c 9000 "$2" | iconv -c -f UTF-8 -t UTF-8 | tr -d '\000-\010\013-\037' | sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g'
	[ "$(wc -c <"$2")" -le 9000 ] || printf '\n(cut here; the artifact "whylate" has all of it)\n'
	printf '</pre>\n</details>\n'
}

echo "## Latency"
echo
if [ -s check.txt ]; then
	echo "**Violations: $(wc -l <check.txt).**"
elif [ -s whylate.sarif ]; then
	echo "All budgets are kept."
else
	echo "No budget was given, and there is no baseline: nothing was judged."
fi
[ -s diff.txt ] || printf '\nThere is no baseline of the main branch yet.\n'
part "Violations" check.txt " open"
part "Compared with the main branch" diff.txt " open"
part "Why requests are late" explain.txt ""
