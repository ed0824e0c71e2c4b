package tune

import (
	"fmt"
	"runtime"

	"github.com/whylate/whylate/service/cgroup"
)

// pollsToChange is the number of polls in a row that must choose another value before
// it is set. The first poll sets it at once, because the program is only starting. Later
// the runtime, which follows its limit once a second, has the chance to set it first.
const pollsToChange = 3

// applyProcs decides about GOMAXPROCS, sets it if the mode is ModeApply, and records the decision. Another value than the present one has to be
// wanted at pollsToChange polls in succession, except at the first poll.
func (t *Tuner) applyProcs() {
	procs := &t.procs
	event := procs.event(t.current.cpuSource())
	current := event.From
	n, reason := procsFor(t.procsInput())
	want, runtimeChoice := int64(n), int64(t.runtimeChoice())
	if procs.env == "" && !procs.foreign {
		procs.foreign = t.detectForeignProcs(current, runtimeChoice)
	}
	if procs.foreign {
		if procs.differingPolls++; want == t.overruledProcs {
			procs.differingPolls = 0
		} else if t.overruledProcs == 0 || procs.differingPolls >= pollsToChange {
			// Reported again when the tuner would set another value.
			t.overruledProcs, procs.differingPolls, procs.hasEvent = want, 0, false
		}
	}
	if t.keepForeign(procs, event, fmt.Sprintf("; policy %s would be %d: %s", t.opts.Policy, want, reason)) {
		return
	}
	if t.opts.Policy == PolicyLatency {
		if t.polls > 1 {
			var stepReason string
			n, stepReason = t.latency.step(t.latencyWindow(int(current)))
			want = int64(n)
			if want == current {
				return
			}
			reason = stepReason
			procs.differingPolls = pollsToChange // the policy waits before it decides
		}
	}
	if t.opts.Policy == PolicyCeil && t.opts.Rounding == nil && t.opts.Procs == ModeApply && t.polls > 1 {
		if crowdedProcs, stepReason := t.crowded.step(t.crowdedWindow(int(current)), n, t.maxCrowdedProcs()); crowdedProcs != n || stepReason != "" {
			if n, want = crowdedProcs, int64(crowdedProcs); stepReason != "" {
				reason, procs.differingPolls = reason+"; "+stepReason, pollsToChange
			}
		}
	}
	if want == current {
		procs.differingPolls = 0
		event.Action, event.Reason = ActionKeep, reason
		if !procs.changed && want == runtimeChoice && t.runtime.aware && t.current.canRuntimeSeeQuota() {
			event.Reason += "; the runtime picks the same, and keeps following it"
		}
		t.record(procs, event)
		return
	}
	if procs.differingPolls++; procs.differingPolls < pollsToChange && t.polls > 1 {
		return
	}
	procs.differingPolls = 0
	event.To, event.Reason = want, reason
	if want == runtimeChoice && procs.changed && t.runtime.aware && t.runtime.defaultProc() {
		event.Action, procs.changed = ActionRestore, false
		event.Reason += "; the runtime picks the same, so it controls GOMAXPROCS again"
		t.record(procs, event)
		return
	}
	t.applyEvent(procs, event, t.opts.Procs == ModeApply)
}

// detectForeignProcs reports whether other code set GOMAXPROCS to current: it is neither this tuner's value nor one that the runtime may have chosen,
// such as runtimeChoice. A value that the runtime may still correct counts only after pollsToChange polls. It counts these polls in
// procs.differingPolls.
func (t *Tuner) detectForeignProcs(current, runtimeChoice int64) bool {
	procs := &t.procs
	if procs.changed {
		return current != procs.lastSet
	}
	// The runtime chooses the machine's CPUs, or fewer by affinity or quota. Shortly
	// after a change its value may follow from an earlier limit.
	if current == runtimeChoice || current == int64(t.current.cpus) || current == int64(runtime.NumCPU()) {
		return false
	}
	if t.polls > 1 && (current == procs.initial || procs.differingPolls < pollsToChange) {
		procs.differingPolls++
		return false
	}
	return true
}

// maxCrowdedProcs returns the largest GOMAXPROCS that crowdedState may choose: the runtime's default if its own group had the tightest quota. It is
// at most Options.MaxProcs.
func (t *Tuner) maxCrowdedProcs() int {
	n := runtimeDefault(t.current.bounds.Quota, t.current.cpus)
	if t.opts.MaxProcs > 0 {
		n = min(n, t.opts.MaxProcs)
	}
	return n
}

// crowdedWindow is latencyWindow for crowdedState, for which the counters of the process's
// own group suffice: a hidden quota would throttle the runtime's default as well.
func (t *Tuner) crowdedWindow(current int) latencyWindow {
	w := t.latencyWindow(current)
	if t.current.bounds.QuotaDepth == 0 && t.current.stat.Has&t.previous.stat.Has&cgroup.HasBandwidth != 0 {
		w.measured = t.current.cpuOK
	}
	return w
}

// latencyWindow returns the measurements between the previous poll and this one, and the limits. current is GOMAXPROCS. measured is false if the
// counters are missing.
func (t *Tuner) latencyWindow(current int) latencyWindow {
	w := latencyWindow{quota: t.current.bounds.Quota, cpus: t.current.cpus, current: current, minProcs: t.opts.MinProcs, maxProcs: t.opts.MaxProcs}
	wall := t.current.readAt.Sub(t.previous.readAt)
	if wall <= 0 || !t.current.statOK || !t.previous.statOK || !t.current.cpuOK {
		return w
	}
	th := cgroup.Compare(&t.previous.stat, &t.current.stat)
	w.measured = th.Verdict != cgroup.VerdictUnknown
	w.periods, w.throttled = th.Periods, th.ThrottledPeriods
	if th.Verdict == cgroup.VerdictAncestor && t.current.bounds.Period > 0 {
		// For an ancestor only the lost CPU time is known, not the periods: assume that
		// all Ps were throttled for that long.
		w.periods = int64(wall / t.current.bounds.Period)
		w.throttled = int64(float64(w.periods) * min(1, th.Ancestor.Seconds()/(wall.Seconds()*float64(max(1, current)))))
	}
	// By Little's law the mean number of waiting goroutines is the sum of their waits
	// divided by the window's length.
	w.runnable = max(0, t.current.goStats.schedWait-t.previous.goStats.schedWait) / wall.Seconds()
	w.usedCPUs = (t.current.cpu - t.previous.cpu).Seconds() / wall.Seconds()
	return w
}

// procsInput returns procsFor's input at this poll.
func (t *Tuner) procsInput() procsInput {
	return procsInput{
		policy: t.opts.Policy, quota: t.current.bounds.Quota, cpus: t.current.cpus, noQuotaReason: t.current.limits.CPU.SightText,
		minProcs: t.opts.MinProcs, maxProcs: t.opts.MaxProcs, rounding: t.opts.Rounding,
	}
}

// runtimeChoice returns the runtime's current default for GOMAXPROCS.
func (t *Tuner) runtimeChoice() int {
	if !t.runtime.aware {
		return t.current.cpus
	}
	return runtimeDefault(t.current.bounds.OwnQuota, t.current.cpus)
}
