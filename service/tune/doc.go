// Package tune sets GOMAXPROCS, GOMEMLIMIT and GOGC according to the CPU and
// memory limits of the process, and reports the reasons.
//
//	t := tune.Start(tune.Options{
//		Procs:  tune.ModeApply,
//		Memory: tune.ModeObserve,
//		GC:     tune.ModeObserve,
//	})
//	defer t.Stop()
//
// By default each of the three is only observed: a [Tuner] reports the value that it
// would set, and changes nothing. The environment variables GOMAXPROCS, GOMEMLIMIT and
// GOGC always win. So does a value that other code of the program sets: from then
// on the tuner leaves that knob alone.
//
// Each decision is an [Event] with its value, source and reason, and the way to
// undo it. Events go to a slog.Logger and to a callback. A decision that equals
// the previous one is not reported, so a steady process logs nothing.
//
// The tuner polls the limits every second, and so follows a limit that changes
// while the process runs. A poll does not stop the world. Changing GOMAXPROCS
// does for a moment; the tuner changes it only if the value differs.
//
// # GOMAXPROCS
//
// A [Policy] derives GOMAXPROCS from the CPU quota: the tightest of the process's
// control group and all visible ancestors. The runtime reads only the quota of the
// process's own group. If the policy's value is the runtime's default, the tuner
// does not call runtime.GOMAXPROCS, because that would turn off the runtime's
// updates. If it has called it before, it calls runtime.SetDefaultGOMAXPROCS
// (Go 1.25), which turns them on again.
//
// # GOMEMLIMIT
//
// GOMEMLIMIT is a share of the tightest memory limit, less the memory in the group
// that is not Go's and that the kernel cannot reclaim.
//
// # GOGC
//
// GOGC rises above its initial value, in steps, while garbage collection takes more
// than 5 % of the process's CPU time and the process uses much less than 70 % of its
// memory limit. It rises only if a GOMEMLIMIT keeps the process below that share,
// and falls at the next collection when these conditions end.
//
// A guard detects a memory limit that is too small, at which the collector takes
// the service's CPU and frees nothing. It raises an alarm. A GOMEMLIMIT that this
// package set is then raised to its share of the container's limit, so that the
// kernel soon kills a process that does not fit.
//
// The collector's share is measured in real CPU time. The runtime's estimate counts
// the time of Ps, which is larger under a quota.
//
// docs/tune.md has the reasons and measurements.
package tune
