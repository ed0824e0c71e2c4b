// Package probe measures from inside a process when the kernel does not run it,
// because of a CPU quota, other processes or the hypervisor. The runtime's metric
// /sched/latencies does not show that: a goroutine whose thread does not run
// remains in the state "running".
//
//	p := probe.Start(probe.Options{OnFreeze: func(f probe.Freeze) {
//		slog.Warn("frozen", "for", f.Likely, "quota", f.Verdict)
//	}})
//	defer p.Stop()
//
// # Measurement
//
// A goroutine sets a timer and measures its lateness. If it is late, the kernel ran
// none of the process's threads, or the goroutine waited for a P while others ran.
// The CPU time that the process used in between distinguishes the two, because a
// goroutine that holds a P uses CPU time. The part that CPU time does not explain is
// a freeze: an interval of wall time with a minimum, a maximum and a likely length. A
// freeze shorter than the interval between two ticks may be missed. A freeze that
// begins before the timer is due is longer than the lateness; its minimum excludes
// that part.
//
// The kernel's counters, read at the end of a freeze, show its cause: see
// [Freeze.Verdict]. They also count throttling that no timer notices, so a [Snapshot]
// has both: freezes by timer, and throttled time by counter. The counters are sums
// over CPUs: compare them with CPU time, never with wall time.
//
// Lost time has three parts: quota (cpu.stat and cpu.stat.local), run queue
// (schedstat of all threads, without what the quota explains), and steal by
// the hypervisor. If a quota and other processes delayed the process in the same
// second, the run queue's part is unknown and is added to [Snapshot.Unsplit].
//
// # Cost
//
// The interval adapts. While a process is far from its limit and not throttled,
// ticks come every IdleInterval, by default four times a second. From half of
// its limit on, for ten seconds after any throttling, and in the first two
// seconds, they come every Interval, by default 10 ms. A tick makes one or two
// system calls and allocates nothing. In an idle process it also wakes a thread,
// which costs more than the tick. docs/internals/measurements.md has the figures.
//
// The goroutine is not locked to its thread. That would need two thread switches a
// tick, with an idle P in between, without any gain: the CPU time shows how long the
// goroutine waited for a P.
//
// Outside Linux there are no counters: verdicts are unknown. Windows counts
// CPU time too coarsely, so only lateness is measured there.
package probe
