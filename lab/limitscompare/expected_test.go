//go:build linux

package limitscompare

// expectedDifferences has the settings that differ from the binding limits, by machine and library, with the reason. Go and
// automaxprocs are compared with the tightest visible quota, rounded as each rounds; automemlimit with nine tenths of the
// tightest memory limit. A difference that is not listed fails the test, and so does a listed one that no longer occurs.
func expectedDifferences() map[string]string {
	m := map[string]string{}
	add := func(source, reason string, machines ...string) {
		for _, n := range machines {
			m[n+": "+source] = reason
		}
	}
	const (
		ancestor = "the tightest quota is an ancestor's; it looks at the own group only (golang/go#81180, automaxprocs#66)"
		atMount  = "it takes the group's path as one below /sys/fs/cgroup, whatever the mount shows"
	)
	add("Go", ancestor, "deleted-group", "docker-v2-host-namespace", "ecs-v1-privileged", "half-broken", "lxc-v1", "lxc-v2",
		"systemd-slices", "systemd-user-service", "two-mounts", "real/parent-quota-plain")
	add("automaxprocs", ancestor, "deleted-group", "docker-v2-host-namespace", "ecs-v1-privileged", "half-broken", "lxc-v1", "lxc-v2",
		"systemd-slices", "systemd-user-service", "real/parent-quota-plain")
	add("Go", "it takes the first line of mountinfo that fits, which another mount covers", "covered-mount", "real/own-quota-covered")
	add("automaxprocs", atMount, "above-the-namespace-mounted", "covered-mount", "escapes", "two-mounts", "real/own-quota-bound", "real/own-quota-covered")
	add("automaxprocs", "it supplies the period that is missing in cpu.max; the kernel never leaves it out", "one-decimal-file")
	add("automaxprocs as foretold", "see automaxprocs", "one-decimal-file")
	return m
}
