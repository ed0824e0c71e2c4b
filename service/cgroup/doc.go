// Package cgroup reads the limits of a process on Linux: CPU quota, CPU set and
// memory, in cgroup v1, v2 and mixtures of both, at every visible level, each
// with the file that sets it. It also reads the CPU time and memory that the
// process's group used, and how long its quota throttled it.
//
// [Read] returns the limits and their files:
//
//	l, err := cgroup.Read(cgroup.Options{})
//	if err != nil {
//		return err // errors.Is(err, cgroup.ErrNotMeasurable) outside Linux
//	}
//	fmt.Println(l.CPU.Quota, l.CPU.Parallelism, l.Memory.Max)
//	for _, b := range l.CPU.Bounds {
//		fmt.Println(b.File, b.Text, b.Won, b.Why)
//	}
//
// A [Sampler] keeps the files open and reads counters and limits
// repeatedly without allocating; [Compare] turns two samples into a verdict.
//
// # Hidden groups
//
// A limit of a group binds every group below it, so the effective limit is the
// tightest one from the process's own group to the root. A container usually
// sees only a part of that chain: CPU.Hidden and Memory.Hidden report that
// groups exist above the outermost visible one. Their limits cannot be read,
// but two files show their effect: cpu.stat.local (Linux 6.6 and later)
// counts the time for which any ancestor throttled the group, and cgroup v1's
// hierarchical_memory_limit is the minimum over all ancestors.
//
// # How a limit is found
//
// /proc/PID/cgroup names the process's group. A v1 hierarchy with the controller
// comes before the v2 one: the kernel never has a controller on both. cpu, cpuset
// and memory are looked up separately, so any mixture works.
//
// /proc/self/mountinfo shows where groups are visible. Of all mounts that show the
// process's group, the one with the most visible ancestors is taken, the last one
// of equals, and only if the directory exists: another mount may cover it. Mount
// roots other than /, octal escapes and paths above the cgroup namespace (/..) are
// understood. A v2 group without the controller has no limit file: the limits of the groups
// above apply.
//
// # Units
//
// Everything is converted to one unit: time to [time.Duration] (v1 counts in
// nanoseconds, v2 in microseconds), memory to bytes, CPU limits to CPUs
// (quota divided by period). Throttled time is summed over CPUs by the
// kernel, so it may exceed wall time; never divide one by the
// other.
//
// Sources of the formats: proc_pid_cgroup(5), proc_pid_mountinfo(5),
// cgroups(7), the kernel's admin-guide/cgroup-v1, cgroup-v2.rst and
// scheduler/sched-bwc.rst.
package cgroup
