// Package sweep measures a service with different settings and recommends one. Each run starts the
// service within real CPU and memory limits and loads it with package load.
//
// An arm is one combination of settings. Every run of an arm starts the service again, because a
// service behaves differently after each start. The runs of all arms are interleaved in random order,
// so that changes of the machine affect all arms. Runs are the units of the statistics: one percentile
// for each run, and intervals over runs (package compare).
//
// A guard, another process of this program, starts the service (package guard). It adopts every
// process that the service leaves behind and kills all of them when its standard input ends, which
// happens however the sweep ends. If the guard is killed, only the cgroup remains, which the next
// sweep removes.
package sweep
