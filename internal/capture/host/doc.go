// Package host samples what the kernel knows about a process while a trace of
// it is recorded, and reads those samples again beside the trace.
//
//	s, err := host.Start(host.Options{PID: pid})
//	...                                   // record
//	rec := s.Stop()
//	os.WriteFile("host.jsonl", rec.Data, 0o644)
//
//	samples, err := host.Read(r)
//	rep.Host = samples.Summarize(host.Window{...})
//
// A trace shows what the Go runtime thought it was doing. Whether the kernel
// let its threads run, and whether the network lost what was sent, only the
// kernel can tell: the cgroup's cpu.stat and cpu.stat.local, the threads'
// schedstat, and the sockets' tcp_info. docs/host.md says what is measured,
// how the time that was lost is split, what it costs, and where it ends.
//
// # The samples
//
// A recording of samples is a text of JSON objects, one a line (docs/bundle.md
// lists the fields). All counters are as the kernel gives them: they grow, and
// mean something only as differences. Units are those of the names: _ns and
// _bytes, whatever cgroup version they came from.
//
// # Clocks
//
// Every sample has the monotonic clock and the wall clock of the recording
// side. On Linux the runtime's own clock is the same monotonic clock, and a
// trace of Go 1.25 and later holds a snapshot of both: samples are put on the
// trace's clock by the monotonic one, which no step of the wall clock moves,
// or by the wall clock where the two disagree (a time namespace, another
// machine).
package host
