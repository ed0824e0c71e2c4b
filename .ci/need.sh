# What .ci/run and .ci/full have in common.

[ -d /usr/local/go/bin ] && PATH=$PATH:/usr/local/go/bin

# need PROGRAM PACKAGE installs a Debian package if the program is missing.
need() {
	command -v "$1" >/dev/null && return
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends "$2"; } >/dev/null && return
	fi
	echo "$1 is missing; install it (Debian: apt-get install $2)" >&2
	return 1
}
