// Package probe measures, from inside a process, how long the kernel keeps it
// from running: what /sched/latencies of runtime/metrics cannot see, because a
// goroutine whose thread is frozen stays "running" there.
//
//	p := probe.Start(probe.Options{OnFreeze: func(f probe.Freeze) {
//		slog.Warn("frozen", "for", f.Likely, "quota", f.Verdict)
//	}})
//	defer p.Stop()
//
// # What is measured
//
// A goroutine sets a timer and looks how late it goes off. Late means that the
// kernel ran none of the process's threads, or that the goroutine waited for a
// P while others ran. The two are distinguished by the CPU time that the process
// used meanwhile: whoever waits for a P waits for something that uses CPU. What
// CPU time does not explain is a freeze, a stretch of wall time; each has a
// least, a most and a likely length. Freezes shorter than the interval between
// two ticks can be missed, and one that begins before the timer is due is
// longer than the lateness: its least length does not count that part.
//
// Who froze the process is told by the kernel's counters, read at the end of
// the freeze: see [Freeze.Verdict]. They count what no timer sees as well, so
// a [Snapshot] has both: freezes by timer, and throttled time by counter. The
// counters are sums over CPUs: compare them with CPU, never with wall time.
//
// Lost time is split in three: quota (cpu.stat and cpu.stat.local), run queue
// (schedstat of all threads, without what the quota explains), and steal by
// the hypervisor. Where quota and neighbours were at work in the same second
// the run queue's part cannot be told and stays in [Snapshot.Unsplit].
//
// # What it costs
//
// The interval adapts. A process far from its limit that was not throttled is
// looked at every IdleInterval, by default four times a second. From half of
// its limit on, for ten seconds after any throttling, and in the first two
// seconds, ticks come every Interval, by default 10 ms. A tick makes one or two system calls and
// allocates nothing; what it costs more is waking a thread when the process is
// idle. The figures are in docs/probe.md.
//
// The goroutine is not locked to its thread. A locked one needs two thread
// switches a tick, with a P idle meanwhile, and gains nothing here: the time
// of waiting for a P is known from CPU time.
//
// Outside Linux there are no counters: verdicts are unknown. Windows counts
// CPU time too coarsely, so only lateness is measured there. Nothing fails.
package probe
