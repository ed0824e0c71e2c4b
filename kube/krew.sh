#!/bin/bash
# Packs kubectl whylate for krew: an archive for each platform, and the manifest whylate.yaml with their sums, as krew-index takes it.
#
# usage: kube/krew.sh VERSION DIRECTORY          (PLATFORMS=linux/amd64: for fewer)
set -euo pipefail
cd "$(dirname "$0")"
version=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
manifest=$out/whylate.yaml
cat >"$manifest" <<EOF
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: whylate
spec:
  version: $version
  homepage: https://github.com/whylate/whylate
  shortDescription: Say why requests of a Go service are late
  description: |
    Records an execution trace of Go services in pods, reached as by kubectl
    port-forward, and says why their requests were late: each nanosecond of
    latency has one cause with a source line. Nothing is installed in the
    cluster; the services have to serve net/http/pprof.
  platforms:
EOF
for platform in ${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64}; do
	os=${platform%/*} arch=${platform#*/} bin=kubectl-whylate
	[ "$os" != windows ] || bin=$bin.exe
	archive=kubectl-whylate_${version}_${os}_$arch.tar.gz
	dir=$(mktemp -d)
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -ldflags='-s -w' -o "$dir/$bin" ./cmd/kubectl-whylate
	cp ../LICENSE "$dir"
	tar -C "$dir" --sort=name --owner=0 --group=0 --mtime=@0 -cf - "$bin" LICENSE | gzip -n >"$out/$archive"
	rm -r "$dir"
	cat >>"$manifest" <<EOF
    - selector:
        matchLabels:
          os: $os
          arch: $arch
      uri: https://github.com/whylate/whylate/releases/download/$version/$archive
      sha256: $(sha256sum "$out/$archive" | cut -d' ' -f1)
      bin: $bin
EOF
done
