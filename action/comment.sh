#!/bin/bash
# Writes whylate-ci/summary.md into the pull request: one comment, which later runs update.
#
# usage: WHYLATE_TOKEN=... WHYLATE_PULL=12 comment.sh         on GitHub, or in GitLab CI, where CI_MERGE_REQUEST_IID says the number
#
# A comment is ours if the token's own user has written it and it begins with the mark: the text alone proves nothing.
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

# An installation's token, as that of a job is one, may not read /user.
if [ -n "${GITLAB_CI:-}" ]; then
	author=.author user=.id
	call "$CI_API_V4_URL/user" >"$tmp/user"
else
	author=.user user=.data.viewer.databaseId
	call -X POST -d '{"query":"{viewer{databaseId}}"}' "${GITHUB_GRAPHQL_URL:-$GITHUB_API_URL/graphql}" >"$tmp/user"
fi || skip "the token's user could not be read"
me=$(jq -er "$user | numbers" "$tmp/user") || skip "the token's user could not be read"

jq -n --arg mark "$mark" --rawfile text whylate-ci/summary.md '{body: ($mark + "\n" + $text)[:60000]}' >"$tmp/body" || skip "the summary could not be read"
id=
for page in 1 2 3 4 5 6 7 8 9 10; do
	call "$list?per_page=100&page=$page" >"$tmp/page" || skip "the comments could not be read"
	id=$(jq -r --arg mark "$mark" --argjson me "$me" "[.[] | select($author.id == \$me and (.body | startswith(\$mark)))][0].id // empty" "$tmp/page") || skip "the comments could not be read"
	[ -z "$id" ] && [ "$(jq length "$tmp/page")" = 100 ] || break
done
if [ -n "$id" ]; then
	call -X "$update" -d "@$tmp/body" "$one/$id" >/dev/null || skip "the token may not write"
else
	call -X POST -d "@$tmp/body" "$list" >/dev/null || skip "the token may not write"
fi
