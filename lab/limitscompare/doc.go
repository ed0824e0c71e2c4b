// Package limitscompare runs the Go runtime, automaxprocs and automemlimit
// side by side with whylate's cgroup package, on every machine that the
// package's tests describe as text and in real groups, and holds the
// differences against a list of those that are expected, with reasons.
//
// The libraries and the runtime read fixed files below /proc, so each machine
// is planted in a directory that becomes the root of a process (chroot needs
// root). How many CPUs there are cannot be planted: the full table, with 16 of
// them, comes from a virtual machine (see lab/vm):
//
//	WHYLATE_VM=1 go test ./lab/limitscompare
//
// table.golden is that table.
package limitscompare
