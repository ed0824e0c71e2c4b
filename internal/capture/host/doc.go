// Package host samples the kernel's counters of a process while a trace of it is
// recorded, and reads those samples again.
//
//	s, err := host.Start(host.Options{PID: pid})
//	...                                   // record
//	rec := s.Stop()
//	os.WriteFile("host.jsonl", rec.Data, 0o644)
//
//	samples, err := host.Read(r)
//
// A trace shows what the Go runtime thought it was doing. Whether the kernel
// let its threads run, and whether the network lost what was sent, only the
// kernel can tell: the cgroup's cpu.stat and cpu.stat.local, the threads'
// schedstat, and the sockets' tcp_info. docs/host.md says what is measured,
// how lost time is split, what it costs, and where it ends. What samples mean
// for the time of a trace is package explain/hostjoin.
//
// # The samples
//
// A recording of samples is a text of JSON objects, one a line (docs/bundle.md
// lists the fields). All counters are as the kernel gives them: they grow, and
// mean something only as differences. Units are those of the names: _ns and
// _bytes, whatever cgroup version they came from.
//
// Every sample has the monotonic clock and the wall clock of the recording
// side.
package host
