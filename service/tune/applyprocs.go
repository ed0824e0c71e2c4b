package tune

import (
	"fmt"
	"runtime"

	"github.com/whylate/whylate/service/cgroup"
)

// pollsToChange is for how many looks another value must be wanted before it is
// set. The first look acts at once: the program is only starting. Later the
// runtime, which follows its own limit once a second, goes first.
const pollsToChange = 3

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
			// Told again when it begins to cost something else.
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
			procs.differingPolls = pollsToChange // the policy has its own
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

// detectForeignProcs reports whether a GOMAXPROCS is neither this tuner's nor one the
// runtime may have picked.
func (t *Tuner) detectForeignProcs(current, runtimeChoice int64) bool {
	procs := &t.procs
	if procs.changed {
		return current != procs.lastSet
	}
	// The runtime's choice is the CPUs of the machine, fewer by affinity or
	// quota; for a moment it may still be that of an earlier limit.
	if current == runtimeChoice || current == int64(t.current.cpus) || current == int64(runtime.NumCPU()) {
		return false
	}
	if t.polls > 1 && (current == procs.initial || procs.differingPolls < pollsToChange) {
		procs.differingPolls++
		return false
	}
	return true
}

// maxCrowdedProcs is the most Ps that neighbours are a reason for: what the runtime
// would take, were the tightest quota its own group's.
func (t *Tuner) maxCrowdedProcs() int {
	n := runtimeDefault(t.current.bounds.Quota, t.current.cpus)
	if t.opts.MaxProcs > 0 {
		n = min(n, t.opts.MaxProcs)
	}
	return n
}

// crowdedWindow is latencyWindow where the own group's counters suffice: a quota
// out of sight would hold what the runtime takes back as well.
func (t *Tuner) crowdedWindow(current int) latencyWindow {
	w := t.latencyWindow(current)
	if t.current.bounds.QuotaDepth == 0 && t.current.stat.Has&t.previous.stat.Has&cgroup.HasBandwidth != 0 {
		w.measured = t.current.cpuOK
	}
	return w
}

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
		// Of an ancestor only the lost CPU time is known, not the periods: take it
		// that all Ps were held for that long.
		w.periods = int64(wall / t.current.bounds.Period)
		w.throttled = int64(float64(w.periods) * min(1, th.Ancestor.Seconds()/(wall.Seconds()*float64(max(1, current)))))
	}
	// By Little's law the mean number waiting is the time all of them waited
	// divided by the window.
	w.runnable = max(0, t.current.goStats.schedWait-t.previous.goStats.schedWait) / wall.Seconds()
	w.usedCPUs = (t.current.cpu - t.previous.cpu).Seconds() / wall.Seconds()
	return w
}

func (t *Tuner) procsInput() procsInput {
	return procsInput{
		policy: t.opts.Policy, quota: t.current.bounds.Quota, cpus: t.current.cpus, noQuotaReason: t.current.limits.CPU.Seen,
		minProcs: t.opts.MinProcs, maxProcs: t.opts.MaxProcs, rounding: t.opts.Rounding,
	}
}

// runtimeChoice is what the runtime would pick now by itself.
func (t *Tuner) runtimeChoice() int {
	if !t.runtime.aware {
		return t.current.cpus
	}
	return runtimeDefault(t.current.bounds.OwnQuota, t.current.cpus)
}
