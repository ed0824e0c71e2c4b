package tune

import (
	"fmt"
	"runtime"

	"github.com/whylate/whylate/service/cgroup"
)

// patience is for how many looks another value must be wanted before it is
// set. The first look acts at once: the program is only starting. Later the
// runtime, which follows its own limit once a second, goes first.
const patience = 3

func (t *Tuner) lookAtProcs() {
	p := &t.procs
	e := p.event(t.now.cpuSource())
	current := e.From
	n, reason := procsFor(t.procsInput())
	want, own := int64(n), int64(t.runtimeChoice())
	if p.env == "" && !p.foreign {
		p.foreign = t.setByOthers(current, own)
	}
	if p.foreign {
		if p.differs++; want == t.overruled {
			p.differs = 0
		} else if t.overruled == 0 || p.differs >= patience {
			// Told again when it begins to cost something else.
			t.overruled, p.differs, p.spoke = want, 0, false
		}
	}
	if t.yield(p, e, fmt.Sprintf("; policy %s would be %d: %s", t.opts.Policy, want, reason)) {
		return
	}
	if t.opts.Policy == PolicyLatency {
		if t.looks > 1 {
			var why string
			n, why = t.latency.step(t.latencyWindow(int(current)))
			want = int64(n)
			if want == current {
				return
			}
			reason = why
			p.differs = patience // the policy has its own
		}
	}
	if t.opts.Policy == PolicyCeil && t.opts.Rounding == nil && t.opts.Procs == ModeApply && t.looks > 1 {
		if more, why := t.crowded.step(t.crowdedWindow(int(current)), n, t.mostBeside()); more != n || why != "" {
			if n, want = more, int64(more); why != "" {
				reason, p.differs = reason+"; "+why, patience
			}
		}
	}
	if want == current {
		p.differs = 0
		e.Action, e.Reason = ActionKeep, reason
		if !p.changed && want == own && t.runtime.aware && t.now.runtimeSees() {
			e.Reason += "; the runtime picks the same, and keeps following it"
		}
		t.tell(p, e)
		return
	}
	if p.differs++; p.differs < patience && t.looks > 1 {
		return
	}
	p.differs = 0
	e.To, e.Reason = want, reason
	if want == own && p.changed && t.runtime.aware && t.runtime.defaultProc() {
		e.Action, p.changed = ActionRestore, false
		e.Reason += "; the runtime picks the same, so it controls GOMAXPROCS again"
		t.tell(p, e)
		return
	}
	t.act(p, e, t.opts.Procs == ModeApply)
}

// setByOthers reports whether a GOMAXPROCS is neither this tuner's nor one the
// runtime may have picked.
func (t *Tuner) setByOthers(current, own int64) bool {
	p := &t.procs
	if p.changed {
		return current != p.set
	}
	// The runtime's choice is the CPUs of the machine, fewer by affinity or
	// quota; for a moment it may still be that of an earlier limit.
	if current == own || current == int64(t.now.cpus) || current == int64(runtime.NumCPU()) {
		return false
	}
	if t.looks > 1 && (current == p.initial || p.differs < patience) {
		p.differs++
		return false
	}
	return true
}

// mostBeside is the most Ps that neighbours are a reason for: what the runtime
// would take, were the tightest quota its own group's.
func (t *Tuner) mostBeside() int {
	n := runtimeDefault(t.now.bounds.Quota, t.now.cpus)
	if t.opts.MaxProcs > 0 {
		n = min(n, t.opts.MaxProcs)
	}
	return n
}

// crowdedWindow is latencyWindow where the own group's counters suffice: a quota
// out of sight would hold what the runtime takes back as well.
func (t *Tuner) crowdedWindow(current int) latencyWindow {
	w := t.latencyWindow(current)
	if t.now.bounds.QuotaDepth == 0 && t.now.stat.Has&t.prev.stat.Has&cgroup.HasBandwidth != 0 {
		w.measured = t.now.cpuOK
	}
	return w
}

func (t *Tuner) latencyWindow(current int) latencyWindow {
	w := latencyWindow{quota: t.now.bounds.Quota, cpus: t.now.cpus, current: current, least: t.opts.MinProcs, most: t.opts.MaxProcs}
	wall := t.now.at.Sub(t.prev.at)
	if wall <= 0 || !t.now.statOK || !t.prev.statOK || !t.now.cpuOK {
		return w
	}
	th := cgroup.Compare(&t.prev.stat, &t.now.stat)
	w.measured = th.Verdict != cgroup.VerdictUnknown
	w.periods, w.throttled = th.Periods, th.ThrottledPeriods
	if th.Verdict == cgroup.VerdictAncestor && t.now.bounds.Period > 0 {
		// Of an ancestor only the lost CPU time is known, not the periods: take it
		// that all Ps were held for that long.
		w.periods = int64(wall / t.now.bounds.Period)
		w.throttled = int64(float64(w.periods) * min(1, th.Ancestor.Seconds()/(wall.Seconds()*float64(max(1, current)))))
	}
	// By Little's law the mean number waiting is the time all of them waited
	// divided by the window.
	w.runnable = max(0, t.now.rt.waited-t.prev.rt.waited) / wall.Seconds()
	w.used = (t.now.cpu - t.prev.cpu).Seconds() / wall.Seconds()
	return w
}

func (t *Tuner) procsInput() procsInput {
	return procsInput{
		policy: t.opts.Policy, quota: t.now.bounds.Quota, cpus: t.now.cpus, absent: t.now.limits.CPU.Seen,
		least: t.opts.MinProcs, most: t.opts.MaxProcs, rounding: t.opts.Rounding,
	}
}

// runtimeChoice is what the runtime would pick now by itself.
func (t *Tuner) runtimeChoice() int {
	if !t.runtime.aware {
		return t.now.cpus
	}
	return runtimeDefault(t.now.bounds.OwnQuota, t.now.cpus)
}
