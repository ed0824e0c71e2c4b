#!/bin/bash
# Rehearses the packages of a release (.goreleaser.yaml): tags a clone, builds everything on that tag as a release does, and
# does with each package what a user does: unpacks or installs it, runs the program, completes, reads the manual.
# The image is pushed to a registry on loopback, on an empty base. What needs the network or an identity is left out: uploads,
# syft's SBOMs, signatures, provenance.
#
# usage: .ci/packages.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/need.sh
need jq jq && need zsh zsh && need fish fish && need man man-db && need mandoc mandoc && need rpm rpm && need unzip unzip && need ruby ruby &&
	need strace strace && { [ -e /usr/share/bash-completion/bash_completion ] || apt-get install -y -qq --no-install-recommends bash-completion >/dev/null; }
version=0.0.1-rehearsal
tag=v$version
goreleaser=v2.16.0 # newer ones need a module that the Go proxy does not serve (go-msix)
registry=v0.21.7   # go-containerregistry: a registry and its client

tmp=$(mktemp -d)
serving=
trap '[ -z "$serving" ] || kill "$serving"; chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
fail() {
	echo "packages: $*" >&2
	exit 1
}

GOBIN=$tmp/tools go install "github.com/goreleaser/goreleaser/v2@$goreleaser"
go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 .github/workflows/*.yml
GOBIN=$tmp/tools go install "github.com/google/go-containerregistry/cmd/"{registry,crane}"@$registry"

git clone -q --no-hardlinks . "$tmp/clone"
go run ./lab/recordings -unpack lab/recordings/field/sql-pool.whylate.xz >"$tmp/x.whylate"
cd "$tmp/clone"
git config user.name rehearsal
git config user.email rehearsal@example.org
go -C tools run ./release -o "$tmp/proxy" -tag "$tag"
git checkout -q "$tag"


# An empty image stands for the base, and a registry on loopback for the public one.
"$tmp/tools/registry" -port 0 2>"$tmp/registry" &
serving=$!
until port=$(grep -oE 'port [0-9]+$' "$tmp/registry"); do kill -0 "$serving"; done
local=localhost:${port#port }
tar -cf "$tmp/empty.tar" -T /dev/null
for arch in amd64 arm64; do
	"$tmp/tools/crane" append --platform "linux/$arch" -f "$tmp/empty.tar" -t "$local/base:$arch"
	"$tmp/tools/crane" mutate --set-platform "linux/$arch" "$local/base:$arch" -t "$local/base:$arch"
done
"$tmp/tools/crane" index append -m "$local/base:amd64" -m "$local/base:arm64" -t "$local/base"
sed -e "s|base_image: .*|base_image: $local/base|" -e "s|ghcr.io|$local|" -e 's|^  draft: true|  disable: true|' -e 's|skip_upload: auto|skip_upload: true|' \
	.goreleaser.yaml >"$tmp/rehearsal.yaml"

"$tmp/tools/goreleaser" check
others=$(go env GOMODCACHE)/cache/download
GOPROXY=file://$tmp/proxy,file://$others,$(go env GOPROXY)
export GOPROXY GOMODCACHE=$tmp/mod GONOSUMDB='github.com/whylate/*' GOFLAGS=-modcacherw GOWORK=off GORELEASER_CURRENT_TAG=$tag
"$tmp/tools/goreleaser" release --clean --config "$tmp/rehearsal.yaml" --skip=announce,sign,sbom
cd dist

echo "== checksums, of every file that would be uploaded"
sha256sum --check --quiet checksums.txt
for f in *.tar.gz *.zip *.deb *.rpm; do grep -q " $f\$" checksums.txt || fail "checksums.txt does not name $f"; done

# explains PROGRAM... runs the tool, which must explain a recording without any network.
explains() { unshare --net "$@" explain "$tmp/x.whylate" | grep WL2003 >/dev/null || fail "$* does not explain a recording"; }

echo "== archives: of this version, of a tree without changes"
manual=$(basename -a ../artefacts/man/*)
for os in linux darwin windows; do
	for arch in amd64 arm64; do
		for name in whylate kubectl-whylate whylate-fleet; do
			[ $name != whylate-fleet ] || [ $os = linux ] || continue
			dir=${name}_${version}_${os}_$arch at=$tmp/unpacked
			mkdir -p "$at"
			if [ $os = windows ]; then unzip -q "$dir.zip" -d "$at"; else tar -xzf "$dir.tar.gz" -C "$at"; fi
			[ -s "$at/$dir/LICENSE" ] || fail "$dir has no licence"
			[ $name != whylate ] || [ "$(basename -a "$at/$dir/man/"*)" = "$manual" ] || fail "$dir lacks pages of the manual"
			for f in "$at/$dir/"*whylate*; do
				go version -m "$f" >"$tmp/build"
				for want in "GOOS=$os" "GOARCH=$arch" CGO_ENABLED=0 "vcs.modified=false" "-trimpath=true"; do
					grep -qP "^\tbuild\t$want\$" "$tmp/build" || fail "$f is not built with $want"
				done
				grep -qP "^\tmod\tgithub.com/whylate/whylate\S*\t$tag" "$tmp/build" || fail "$f does not know its version"
				grep -qP "^\tdep\tgithub.com/whylate/whylate/service\t$tag" "$tmp/build" || fail "$f is not built with the released service"
				echo "${f#"$at/"}"
			done
		done
	done
done
mine=$tmp/unpacked/whylate_${version}_linux_amd64
PATH=$mine:$tmp/unpacked/whylate-fleet_${version}_linux_amd64:$tmp/unpacked/kubectl-whylate_${version}_linux_amd64:$PATH
whylate version | head -1 | grep -E "^whylate $tag \(revision [0-9a-f]{40}, 20[^,]*Z\)$"
explains whylate
whylate-mcp -root . </dev/null
kubectl-whylate --help | grep -q 'kubectl whylate'
{ whylate-fleet -help 2>&1 || true; } | grep 'whylate-fleet .flags. serve'

echo "== it asks nobody for anything"
strace -f -qq -e trace=connect,sendto -o "$tmp/calls" whylate explain "$tmp/x.whylate" >/dev/null
! grep -E 'AF_INET' "$tmp/calls" || fail "explaining a file opens a connection"

echo "== completion, in bash, zsh and fish"
# shellcheck disable=SC2016 # expanded there
for shell in bash zsh fish; do
	case $shell in
	bash) set -- bash -c 'source /usr/share/bash-completion/bash_completion; source "$1"; compopt() { :; } # knows completion by a key only
		COMP_WORDS=(whylate exp) COMP_CWORD=1 COMP_LINE="whylate exp" COMP_POINT=11
		__start_whylate; printf "%s\n" "${COMPREPLY[@]}"' bash ;;
	zsh) set -- zsh -f -c 'autoload -U compinit; compinit -u -D; source "$1"; [ "$_comps[whylate]" = _whylate ]
		_describe() { print -l $completions; }; words=(whylate exp) CURRENT=2; _whylate' zsh ;;
	fish) set -- fish -N -c 'source $argv[1]; complete -C "whylate exp"' ;;
	esac
	"$@" "$mine/completions/whylate.$shell" >"$tmp/completed" 2>"$tmp/warned"
	[ ! -s "$tmp/warned" ] && grep -q explain "$tmp/completed" && grep -q export "$tmp/completed" || {
		cat "$tmp/completed" "$tmp/warned"
		fail "$shell does not complete"
	}
done

echo "== the manual, by groff and by mandoc"
for page in "$mine"/man/*; do
	MANWIDTH=100 man --warnings -l "$page" >"$tmp/page" 2>"$tmp/warned"
	{ mandoc -T lint -W warning "$page" || true; } | grep -v 'missing date' >>"$tmp/warned" || true # equal texts make equal pages
	[ -s "$tmp/page" ] && [ ! -s "$tmp/warned" ] || {
		cat "$tmp/warned"
		fail "$page has warnings"
	}
done
ls "$mine/man" | wc -l

echo "== deb: in a root of its own, and away again"
root=$tmp/deb
mkdir -p "$root/var/lib/dpkg/"{info,updates}
touch "$root/var/lib/dpkg/status"
dpkg --root="$root" --log=/dev/null --install whylate_*_amd64.deb whylate-fleet_*_amd64.deb
explains "$root/usr/bin/whylate"
MANPATH=$root/usr/share/man man -w whylate-explain >/dev/null
for f in bash-completion/completions/whylate zsh/vendor-completions/_whylate fish/vendor_completions.d/whylate.fish; do [ -s "$root/usr/share/$f" ] || fail "the deb has no $f"; done
dpkg --root="$root" --log=/dev/null --purge whylate whylate-fleet
left=$(find "$root" -type f -not -path '*/var/lib/dpkg/*')
[ -z "$left" ] || fail "left behind: $left"

echo "== rpm"
for arch in x86_64 aarch64; do
	rpm -K --nosignature whylate-[0-9]*".$arch.rpm" whylate-fleet-[0-9]*".$arch.rpm"
	rpm -qpl whylate-[0-9]*".$arch.rpm" >"$tmp/list"
	for f in /usr/bin/whylate /usr/bin/whylate-mcp /usr/share/man/man1/whylate-explain.1.gz /usr/share/zsh/site-functions/_whylate; do
		grep -qx "$f" "$tmp/list" || fail "the rpm for $arch has no $f"
	done
done
mkdir "$tmp/rpm"
rpm --root "$tmp/rpm" --install --nodeps whylate-[0-9]*.x86_64.rpm
explains "$tmp/rpm/usr/bin/whylate"

echo "== cask"
ruby -c homebrew/Casks/whylate.rb
for f in darwin_amd64 darwin_arm64 linux_amd64 linux_arm64; do grep -q "$(awk -v f="whylate_${version}_$f.tar.gz" '$2 == f {print $1}' checksums.txt)" homebrew/Casks/whylate.rb; done

echo "== image"
image=$local/whylate/whylate:$version
"$tmp/tools/crane" manifest "$image" | jq -r '[.manifests[].platform | "\(.os)/\(.architecture)"] | sort | join(" ")' | grep -x 'linux/amd64 linux/arm64'
"$tmp/tools/crane" config --platform linux/amd64 "$image" | jq -e '.config.User == "65532"' >/dev/null || fail "$image runs as root"
mkdir "$tmp/image"
"$tmp/tools/crane" export --platform linux/amd64 "$image" - | tar -x -C "$tmp/image"
cp "$tmp/x.whylate" "$tmp/image/"
chmod 755 "$tmp" "$tmp/image"
unshare --net chroot --userspec=65532:65532 "$tmp/image" /ko-app/whylate explain /x.whylate | grep WL2003 | head -1

echo "packages: well, but for uploads, syft's SBOMs, signatures and provenance, which need the network or an identity"
