#!/bin/bash
# Runs a command that writes a trace, and judges the trace: whylate check, and whylate diff against the main branch's report.
#
# usage: WHYLATE_RUN='go test -run Load -trace "$WHYLATE_TRACE" ./server' run.sh
#
#   WHYLATE_RUN        the command; it writes the trace to $WHYLATE_TRACE
#   WHYLATE_BUDGETS    budgets of whylate check, one a line
#   WHYLATE_FAIL_ON    severity of findings that are violations
#   WHYLATE_TOLERANCE  how much slower than the baseline is allowed (15%)
#   WHYLATE_REQUEST    a regular expression: calls of these functions are the requests
#
# Everything is written to whylate-ci/: report.json, report.html, explain.txt, diff.txt, check.txt, whylate.sarif, summary.md. If old.json
# is there, it is the baseline. The exit status is whylate check's; 3 if the command failed.
set -uo pipefail
# It is for comment.sh; the command is code that may come from a pull request, and whylate would send it to services.
unset WHYLATE_TOKEN
out=whylate-ci
mkdir -p "$out" || exit 3
export WHYLATE_TRACE=$PWD/$out/run.trace
here=$(dirname "$0")

fail() {
	echo "whylate: $*" >&2
	printf '## Latency\n\nNo answer: %s. The log of the job says why.\n' "$*" >"$out/summary.md"
	[ -z "${GITHUB_STEP_SUMMARY:-}" ] || cat "$out/summary.md" >>"$GITHUB_STEP_SUMMARY"
	exit 3
}

rm -f "$WHYLATE_TRACE" "$out"/{report.json,report.html,explain.txt,diff.txt,check.txt,whylate.sarif,summary.md,baseline.json}
bash -eo pipefail -c "${WHYLATE_RUN:?the command that writes a trace to \$WHYLATE_TRACE}" || fail "the command ended with status $?"
[ -s "$WHYLATE_TRACE" ] || fail "the command wrote no trace to \$WHYLATE_TRACE"

explain=()
[ -z "${WHYLATE_REQUEST:-}" ] || explain=(--request "$WHYLATE_REQUEST")
whylate explain "${explain[@]}" --json --html "$out/report.html" "$WHYLATE_TRACE" >"$out/report.json" || fail "the trace could not be explained"
whylate explain "$out/report.json" >"$out/explain.txt" || fail "the report could not be read"
cp "$out/report.json" "$out/baseline.json"

check=()
while IFS= read -r budget; do
	[ -z "${budget// /}" ] || check+=(--budget "$budget")
done <<<"${WHYLATE_BUDGETS:-}"
[ -z "${WHYLATE_FAIL_ON:-}" ] || check+=(--fail-on "$WHYLATE_FAIL_ON")
if [ -s "$out/old.json" ]; then
	check+=(--baseline "$out/old.json" --tolerance "${WHYLATE_TOLERANCE:-15%}")
	whylate diff "$out/old.json" "$out/report.json" >"$out/diff.txt" || fail "the baseline could not be compared"
fi

status=0
: >"$out/check.txt"
if [ ${#check[@]} -gt 0 ]; then
	whylate check "${check[@]}" "$out/report.json" >"$out/check.txt" || status=$?
	[ "$status" -le 1 ] || fail "whylate check ended with status $status"
	# Their notes stand in the log already.
	whylate check "${check[@]}" --format sarif -o "$out/whylate.sarif" "$out/report.json" 2>/dev/null || [ $? = 1 ] || fail "no SARIF file could be written"
	[ -z "${GITHUB_ACTIONS:-}" ] || whylate check "${check[@]}" --format github "$out/report.json" 2>/dev/null || [ $? = 1 ] || fail "no annotations could be written"
fi

# Code scanning refuses a file of more than 10 MB when compressed, or of more than 25,000 results.
# https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
sarif=
if [ -s "$out/whylate.sarif" ]; then
	if [ "$(wc -l <"$out/check.txt")" -le 25000 ] && [ "$(gzip -c "$out/whylate.sarif" | wc -c)" -le 10000000 ]; then
		sarif=$out/whylate.sarif
	else
		echo "whylate: code scanning would refuse $out/whylate.sarif: more than 25,000 results or 10 MB" >&2
	fi
fi
[ -z "${GITHUB_OUTPUT:-}" ] || echo "sarif=$sarif" >>"$GITHUB_OUTPUT"

bash "$here/summary.sh" "$out" >"$out/summary.md"
[ -z "${GITHUB_STEP_SUMMARY:-}" ] || cat "$out/summary.md" >>"$GITHUB_STEP_SUMMARY"
exit "$status"
