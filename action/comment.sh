#!/bin/bash
# Writes whylate-ci/summary.md into the pull request: one comment, which later runs update.
#
# usage: WHYLATE_TOKEN=... WHYLATE_PULL=12 comment.sh         on GitHub, or in GitLab CI, where CI_MERGE_REQUEST_IID says the number
#
# A token that must not write (a pull request from a fork has one) is no failure: the job's summary has the same text.
set -uo pipefail
[ -s whylate-ci/summary.md ] || exit 0
mark='<!-- whylate -->'
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
if [ -n "${GITLAB_CI:-}" ]; then
	list=$CI_API_V4_URL/projects/$CI_PROJECT_ID/merge_requests/$CI_MERGE_REQUEST_IID/notes
	one=$list update=PUT header='PRIVATE-TOKEN: '
else
	list=$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/issues/$WHYLATE_PULL/comments
	one=$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/issues/comments update=PATCH header='Authorization: Bearer '
fi
printf 'header = "%s%s"\n' "$header" "${WHYLATE_TOKEN:-}" >"$tmp/token"
call() { curl -sSf --max-time 60 -K "$tmp/token" -H 'Content-Type: application/json' "$@"; }
skip() {
	echo "whylate: no comment was written: $*" >&2
	exit 0
}

jq -n --arg mark "$mark" --rawfile text whylate-ci/summary.md '{body: ($mark + "\n" + $text)[:60000]}' >"$tmp/body" || skip "the summary could not be read"
id=
for page in 1 2 3 4 5 6 7 8 9 10; do
	call "$list?per_page=100&page=$page" >"$tmp/page" || skip "the comments could not be read"
	id=$(jq -r --arg mark "$mark" '[.[] | select(.body | startswith($mark))][0].id // empty' "$tmp/page") || skip "the comments could not be read"
	[ -z "$id" ] && [ "$(jq length "$tmp/page")" = 100 ] || break
done
if [ -n "$id" ]; then
	# Another user's comment may begin with the same mark; it cannot be changed, and a second one is written then.
	call -X "$update" -d "@$tmp/body" "$one/$id" >/dev/null && exit 0
fi
call -X POST -d "@$tmp/body" "$list" >/dev/null || skip "the token may not write"
