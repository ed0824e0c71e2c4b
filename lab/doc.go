// Package lab has the programs that the tests and proofs of whylate run: services that are late for one known reason, programs
// whose traces the reference reader must read equally, and published incidents.
//
//	go run ./lab/traceprog -list             kinds of recorded activity
//	go run ./lab/traceprog http1 -o x.trace  record one; prints its own counts of what it did
//	go run ./lab/traceprog/cgo -list         those that need a C compiler
//	go run ./lab/truth list                  late services, with the truth about each
//	go run ./lab/truth run semaphore -o dir  serve, load from another process, trace: dir/semaphore.trace, client.json, truth.json
//	go run ./lab/truth serve semaphore       serve until standard input ends, with net/http/pprof
//	go run ./lab/truth load -url ... -path /slow:1:slow -path /fast -rate 80 -json
//	go run ./lab/throttle run -kind http -quota 0.5 -o x.trace   a service under a real CPU quota, with the kernel's counts
//	go run ./lab/agreement DIR               what is inferred, against the kernel's events in the same recordings
//	go run ./lab/proof                       predict, make the change, measure, compare
//	go run ./lab/mutants -n 60               change a line of the engine, run its tests, and count the changes that they catch
//	go test -json ./... | go run ./lab/outcomes                  what failed, what took long, and what was skipped for which reason
//	go run ./lab/damage -whylate PROGRAM x.trace ...             damaged traces through all verbs, within bounds of time and memory
//
//	go run ./lab/field -corpus               record real programs, with and without faults, for docs/internals/accuracy.md
//	go run ./lab/recordings                  record programs and services for tests, which then need no clock
//
// Other programs are steps of .ci/full: vm (lab/vm, lab/limitscompare), cases (lab/maxprocs/cases), browser, and programs
// (lab/damage, lab/jaeger, lab/maxprocs, lab/peers, lab/perfetto, lab/sweep, soaks of lab/throttle).
//
// Tests of other modules use recordings of them, or run them, through internal/testing/testprog.
//
// A new service is an entry and its code in lab/truth/catalog: the line of the fault has the comment "truth: site NAME" and is
// in a named function.
package lab
