#!/bin/bash
# Fetches the main branch's last report, the artifact whylate-baseline, to whylate-ci/old.json. Without one, it says so and ends well.
#
# usage: WHYLATE_TOKEN=... WHYLATE_MAIN=main baseline.sh      on GitHub, which sets GITHUB_API_URL, GITHUB_REPOSITORY and GITHUB_REF_NAME
set -uo pipefail
mkdir -p whylate-ci
rm -f whylate-ci/old.json
none() {
	echo "whylate: no baseline: $*" >&2
	exit 0
}
main=${WHYLATE_MAIN:-main}
[ "${GITHUB_REF_NAME:-}" != "$main" ] || none "this is $main"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# The token is given by a file, so that no list of processes shows it.
printf 'header = "Authorization: Bearer %s"\n' "${WHYLATE_TOKEN:-}" >"$tmp/token"
get() { curl -sSfL --max-time 60 --retry 2 -K "$tmp/token" -H 'Accept: application/vnd.github+json' "$@"; }

get "$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/actions/artifacts?name=whylate-baseline&per_page=100" >"$tmp/list" || none "the artifacts could not be listed"
# A pull request can write an artifact of this name too, also from a fork.
url=$(jq -r --arg main "$main" '[.artifacts[] | select((.expired | not) and .workflow_run.head_branch == $main
	and .workflow_run.head_repository_id == .workflow_run.repository_id)] | max_by(.created_at) | .archive_download_url // empty' "$tmp/list") || none "the list of artifacts could not be read"
[ -n "$url" ] || none "$main has none yet"
get --max-filesize 50000000 -o "$tmp/zip" "$url" || none "the artifact could not be fetched"
# One file of one name is read, whatever else the archive holds.
unzip -p "$tmp/zip" baseline.json | head -c 50000000 >"$tmp/json" && jq -e .schema "$tmp/json" >/dev/null || none "the artifact holds no report"
mv "$tmp/json" whylate-ci/old.json
