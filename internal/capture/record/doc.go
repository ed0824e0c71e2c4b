// Package record records execution traces of running services through the handlers of net/http/pprof, together with a
// CPU profile and an allocation profile of the same time.
//
//	s, err := record.Open(ctx, "http://localhost:6060", record.Options{Duration: 5 * time.Second})
//	...
//	defer s.Close()
//	_, err = io.Copy(dst, s)            // the trace, while it arrives
//	cpu, allocs := s.Profiles()
//	fmt.Println(s.Result().Warnings)
//
// [Save] records into a file, [SaveAll] records several services at once, and [SaveFlight] fetches the recording of a
// flight recorder.
//
// A trace has CPU samples only while a CPU profile runs (golang.org/issue/66679). So Open requests the CPU profile first,
// for one second longer than the trace. Its handler sends nothing until the profile ends; Open waits a few round trips,
// assumes that the profile runs, and then requests the trace. A profile that fails is a warning.
//
// Credentials are user names, passwords, tokens, and the values of headers and query parameters. They go to the endpoint's
// own origin only: not to the target of a redirect on another host, and not into errors, results or files. Before a
// message quotes text from a server, credentials in it are masked.
package record
