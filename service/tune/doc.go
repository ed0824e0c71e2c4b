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
// Each of the three is observed unless told otherwise: what would be set is
// said, and nothing is changed. The environment variables GOMAXPROCS,
// GOMEMLIMIT and GOGC always win, and so does a value that other code of the
// program set: from then on that knob is left alone.
//
// Every decision is an [Event] with its value, source, reason and what would
// undo it. Events go to a slog.Logger and to a callback; only decisions that
// differ from the last are events, so a steady process is silent.
//
// The limits are looked at again every second, so a limit that is changed
// while the process runs is followed. Looking stops nothing; changing
// GOMAXPROCS stops the world for a moment, and is done only when the value
// differs.
//
// # GOMAXPROCS
//
// See [Policy]. The quota is the tightest of all visible levels, not only the
// process's own group's, which is all that the runtime reads. Where a policy
// wants what the runtime picks by itself, nothing is called: a call of
// runtime.GOMAXPROCS would turn the runtime's own updates off. Where it had
// been called, runtime.SetDefaultGOMAXPROCS (Go 1.25) hands control back.
//
// # GOMEMLIMIT
//
// A share of the tightest memory limit, less memory of the group that is not
// Go's and that the kernel cannot drop.
//
// # GOGC
//
// Raised above its initial value, in steps, while collecting costs more than
// a twentieth of the CPU time really used and the process is far below seven
// tenths of the memory, and only under a GOMEMLIMIT that keeps it there; lowered
// at the next collection when that is no longer so. A guard
// watches for a memory limit that makes the collector take the service's CPU
// for nothing: it raises an alarm, and a limit that this package set falls back
// to its share of the container's, so that a process that does not fit ends
// soon and visibly. The collector's share is one of real CPU time, which the runtime's own
// estimate, counted in Ps, exceeds under a quota.
//
// docs/tune.md has the reasons and measurements.
package tune
