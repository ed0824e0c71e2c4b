// Package host samples the Linux kernel's counters of one process while a trace of it is recorded, and
// reads the samples back.
//
//	s, err := host.Start(host.Options{PID: pid})
//	...                                   // record
//	rec := s.Stop()
//	os.WriteFile("host.jsonl", rec.Data, 0o644)
//
//	samples, err := host.Read(r)
//
// A trace shows what the Go runtime did. It does not show whether the kernel ran the threads of the
// process or whether the network lost segments. A Sampler reads that from the kernel: cpu.stat and
// cpu.stat.local of the cgroup, schedstat of the threads, and tcp_info of the sockets. docs/host.md
// lists the counters, explains how lost time is split, and gives the cost and the limits. Package
// explain/hostjoin relates samples to the time of a trace.
//
// The recording, host.jsonl, has one JSON object a line; docs/bundle.md lists the fields. Counters
// have the kernel's values: they only grow, and only differences have a meaning. The suffix of a name
// gives its unit, _ns or _bytes, for both versions of cgroups. Every sample has the time of the
// recorder's monotonic clock and wall clock.
package host
