#!/bin/bash
# Installs whylate and puts it on the PATH of later steps.
#
# usage: WHYLATE_VERSION=v0.1.0 install.sh     that version
#        install.sh                            the commit that this script is of: who pins the action has pinned the tool
set -euo pipefail
if [ -n "${WHYLATE_VERSION:-}" ]; then
	go install "github.com/whylate/whylate/cmd/whylate@$WHYLATE_VERSION"
else
	# The checkout has a workspace of its own, and no repository that its revision could be read from.
	(cd "$(dirname "$0")/.." && GOWORK='' GOFLAGS='-buildvcs=false' go install ./cmd/whylate)
fi
bin=$(go env GOBIN)
[ -n "$bin" ] || bin=$(go env GOPATH)/bin
[ -z "${GITHUB_PATH:-}" ] || echo "$bin" >>"$GITHUB_PATH"
