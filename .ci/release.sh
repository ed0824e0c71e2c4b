#!/bin/bash
# Rehearses a release: tags and packs every module (tools/release), serves them from a directory as a module proxy would, and
# does from there, with an empty module cache, what users do: installs the tool, runs the README's commands, and builds a
# service that imports the packages for services and the adapters. Nothing is published, and nothing is left.
#
# usage: .ci/release.sh
set -euo pipefail
cd "$(dirname "$0")/.."
version=v0.0.1-rehearsal

tmp=$(mktemp -d)
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
go -C tools run ./release -o "$tmp/proxy" "$version"

others=$(go env GOMODCACHE)/cache/download # what this machine has already; the ordinary proxy has the rest
GOPROXY=file://$tmp/proxy,file://$others,$(go env GOPROXY)
export GOPROXY GOMODCACHE=$tmp/mod GONOSUMDB='github.com/whylate/*' GOFLAGS=-modcacherw GOWORK=off GOBIN=$tmp/bin

mkdir "$tmp/outside"
cd "$tmp/outside"
go install "github.com/whylate/whylate/cmd/whylate@$version"
"$tmp/bin/whylate" version | tee version
grep -qE "^whylate $version \(revision [0-9a-f]{40}" version
grep -q "^github.com/whylate/whylate/service $version" version
go install "github.com/whylate/whylate/mcp/cmd/whylate-mcp@$version"
"$tmp/bin/whylate-mcp" -root . </dev/null
go install "github.com/whylate/whylate/kube/cmd/kubectl-whylate@$version"
"$tmp/bin/kubectl-whylate" --help >/dev/null
"$tmp/bin/whylate" demo >demo || grep -q 'known faults found' demo
tail -2 demo

cat >go.mod <<'EOF'
module example.org/outside

go 1.26
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/whylate/whylate"
	whylateotel "github.com/whylate/whylate/adapters/otel"
	whylateprom "github.com/whylate/whylate/adapters/prometheus"
	_ "github.com/whylate/whylate/service/auto"
	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/probe"
)

func main() {
	l, err := cgroup.Read(cgroup.Options{})
	fmt.Println(l != nil, err, whylate.Options{}.Name)
	prometheus.MustRegister(whylateprom.NewCollector(probe.Start(probe.Options{}), nil))
	m, err := whylateotel.New(whylateotel.Options{})
	fmt.Println(m != nil, err)
}
EOF
go get "github.com/whylate/whylate@$version" "github.com/whylate/whylate/service@$version" \
	"github.com/whylate/whylate/adapters/otel@$version" "github.com/whylate/whylate/adapters/prometheus@$version"
go mod tidy
go vet .
go run .

# The README's test command, in the tool's module as it was packed: without the workspace and the lab.
cp -r "$tmp/mod/github.com/whylate/whylate@$version" "$tmp/module"
cd "$tmp/module"
go test -short ./... | grep -v 'no test files'
