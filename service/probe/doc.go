// Package probe measures, from inside a process, how long the kernel keeps it
// from running. The metric /sched/latencies of runtime/metrics does not see that:
// there a goroutine whose thread is frozen stays "running".
//
//	p := probe.Start(probe.Options{OnFreeze: func(f probe.Freeze) {
//		slog.Warn("frozen", "for", f.Likely, "quota", f.Verdict)
//	}})
//	defer p.Stop()
//
// # What is measured
//
// A goroutine sets a timer and measures how late it goes off. If it is late, the
// kernel ran none of the process's threads, or the goroutine waited for a P while
// others ran. The CPU time that the process used meanwhile distinguishes the two:
// what holds a P uses CPU. What CPU time does not explain is a freeze, an interval
// of wall time, with a least, a most and a likely length. A freeze shorter than the
// interval between two ticks can be missed. One that begins before the timer is due
// is longer than the lateness: its least length does not count that part.
//
// The kernel's counters, read at the end of a freeze, say who caused it: see
// [Freeze.Verdict]. They also count what no timer sees, so a [Snapshot] has both:
// freezes by timer, and throttled time by counter. The counters are sums over
// CPUs: compare them with CPU time, never with wall time.
//
// Lost time has three parts: quota (cpu.stat and cpu.stat.local), run queue
// (schedstat of all threads, without what the quota explains), and steal by
// the hypervisor. If a quota and other processes held the process back in the same
// second, the run queue's part is unknown and stays in [Snapshot.Unsplit].
//
// # What it costs
//
// The interval adapts. While a process is far from its limit and not throttled,
// ticks come every IdleInterval, by default four times a second. From half of
// its limit on, for ten seconds after any throttling, and in the first two
// seconds, they come every Interval, by default 10 ms. A tick makes one or two
// system calls and allocates nothing. In an idle process it also wakes a thread,
// which costs more than the tick. docs/internals/measurements.md has the figures.
//
// The goroutine is not locked to its thread. A locked one would need two thread
// switches a tick, with a P idle meanwhile, and would gain nothing: the CPU time
// shows how long the goroutine waited for a P.
//
// Outside Linux there are no counters: verdicts are unknown. Windows counts
// CPU time too coarsely, so only lateness is measured there. Nothing fails.
package probe
