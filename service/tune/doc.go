// Package tune sets GOMAXPROCS, GOMEMLIMIT and GOGC by the limits that bind
// the process, and says why.
//
//	t := tune.Start(tune.Options{
//		Procs:  tune.ModeApply,
//		Memory: tune.ModeObserve,
//		GC:     tune.ModeObserve,
//	})
//	defer t.Stop()
//
// By default each of the three is only observed: a [Tuner] reports what it would
// set and changes nothing. The environment variables GOMAXPROCS, GOMEMLIMIT and
// GOGC always win. So does a value that other code of the program sets: from then
// on the tuner leaves that knob alone.
//
// Every decision is an [Event] with its value, source, reason and what would
// undo it. Events go to a slog.Logger and to a callback. A decision that equals
// the last one is no event, so a steady process is silent.
//
// The tuner reads the limits again every second, and so follows a limit that
// changes while the process runs. Reading stops nothing. Changing GOMAXPROCS
// stops the world for a moment; the tuner does it only when the value differs.
//
// # GOMAXPROCS
//
// [Policy] says how GOMAXPROCS follows from the quota. The quota is the tightest
// of all visible levels; the runtime reads only that of the process's own group.
// If a policy wants what the runtime picks by itself, the tuner does not call
// runtime.GOMAXPROCS, which would turn the runtime's own updates off. If it has
// called it before, runtime.SetDefaultGOMAXPROCS (Go 1.25) hands control back.
//
// # GOMEMLIMIT
//
// GOMEMLIMIT becomes a share of the tightest memory limit, less the memory of the
// group that is not Go's and that the kernel cannot drop.
//
// # GOGC
//
// GOGC rises above its initial value, in steps, while collecting costs more than
// 5 % of the CPU time that the process uses, and the process is far below 70 % of
// its memory. It rises only under a GOMEMLIMIT that keeps the process there, and
// falls at the next collection when that is no longer so.
//
// A guard watches for a memory limit that is too small: then the collector takes
// the service's CPU and frees nothing. The guard raises an alarm. A limit that this
// package set falls back to its share of the container's, so that a process that
// does not fit ends soon and visibly.
//
// The collector's share is one of real CPU time. The runtime's own estimate, counted
// in Ps, is larger under a quota.
//
// docs/tune.md has the reasons and measurements.
package tune
