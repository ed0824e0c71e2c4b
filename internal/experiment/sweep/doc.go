// Package sweep starts a service repeatedly with different settings, each time in a real CPU and memory limit, loads
// it by package load, and says which setting is best for what.
//
// An arm is one combination of settings. Every run of an arm starts the service again, because a service settles
// differently on each start. Runs of all arms are interleaved in random order, so that what changes on the machine
// meanwhile meets all of them. Runs are the units of the statistics: one percentile a run, and intervals over runs
// (compare.Runs).
//
// # Processes
//
// The service is started by a guard: this program again, which adopts every process that the service leaves behind
// (PR_SET_CHILD_SUBREAPER) and kills them all when its standard input ends, which it does however the sweep ends. The
// guard is killed with nothing of it left but the cgroup, which the next sweep removes.
package sweep
