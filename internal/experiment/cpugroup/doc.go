// Package cpugroup creates CPU cgroups (v1 or v2) for sweeps, labs and tests. A group limits the
// processes in it, and the kernel's counters of the group show what the limits did. Linux only. It
// needs root or, with v2, a cgroup that is delegated to the user.
package cpugroup
