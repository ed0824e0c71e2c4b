// Package cpugroup makes CPU cgroups (v1 or v2) for labs and tests: a quota for a
// process that is to be held back, and the kernel's own account of it. Linux and
// root only.
package cpugroup
