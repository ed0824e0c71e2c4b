// Package cpugroup makes CPU cgroups (v1 or v2) for sweeps, labs and tests: limits
// for a process that is to be held back, and the kernel's own account of it. Linux
// only; root is needed, or on v2 a cgroup that is delegated to the user.
package cpugroup
