package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A neighbourhood is what other processes took.
type neighbourhood struct {
	off    float64 // of the time in which the threads wanted to run, they waited for a CPU that others had
	woken  float64 // of the time in which threads woke up, the same
	lost   float64 // of the time in which goroutines showed as running, at least, others had the CPU
	others float64 // CPUs that other processes used, on average; 0 if that is not known
	sure   float64
}

// busyMachine reports whether threads waited for CPUs that other processes used.
func busyMachine(in *Input) (neighbourhood, bool) {
	h := in.Report.Host
	if h == nil || h.Lost.BusyNS == nil || h.Lost.CPUNS == nil || h.Lost.RunDelayNS == nil || *h.Lost.BusyNS <= 0 {
		return neighbourhood{}, false
	}
	l, span := &h.Lost, float64(h.ToNS-h.FromNS)
	waited := float64(*l.RunDelayNS)
	switch {
	case l.RunQueueNS != nil:
		waited = float64(*l.RunQueueNS)
	case l.QuotaNS != nil && *l.QuotaNS > 0:
		return neighbourhood{}, false
	}
	late := 1.0 // a thread that is woken waits for a moment beside idle CPUs, too
	if d := l.LongDelayNS; d != nil && *l.RunDelayNS > 0 {
		late = min(1, float64(*d)/float64(*l.RunDelayNS))
		waited *= late
	}
	if waited < scale.Some*max(float64(*l.BusyNS), scale.Running) || span <= 0 {
		return neighbourhood{}, false
	}
	n := neighbourhood{off: waited / (waited + float64(*l.CPUNS)), sure: 0.9}
	without, _ := l.WithoutCPU()
	all := float64(h.Facts.CPUs) * span
	// A thread that waits for a CPU waits for those that have it: the service's own threads among them, by what they used.
	part := 1.0
	if l.MachineNS == nil || h.Facts.CPUs == 0 {
		if heldBack(in.Report) >= scale.Half {
			return neighbourhood{}, false // threads that a quota releases all at once wait for each other, and nothing tells how long
		}
		n.sure = 0.7
		if all > 0 {
			part = max(0, 1-float64(*l.CPUNS)/all) // others cannot have had more
		}
		n.off, n.woken, n.lost = part*n.off, part*late, part*without
		return n, h.Facts.Parallelism > 0 && in.Process.Procs <= h.Facts.Parallelism && part*waited >= 2*scale.Some*float64(*l.BusyNS) && n.lost >= scale.Some
	}
	others := max(0, float64(*l.MachineNS-*l.CPUNS))
	n.others = others / span
	if others > 0 {
		part = others / (others + float64(*l.CPUNS))
	}
	n.off, n.woken, n.lost = part*n.off, part*late, part*without
	full := others+float64(*l.CPUNS)+waited >= scale.NearlyAll*all || l.PressureNS != nil && float64(*l.PressureNS) >= scale.Much*span
	if crowded(in) { // who waits, waits for the service's own threads, unless nothing of the machine is left
		full = others+float64(*l.CPUNS) >= scale.NearlyAll*all
	}
	return n, full && others >= scale.Much*all && part*waited >= scale.Some*float64(*l.BusyNS)
}

// checkBusyMachine is WL1009, busy-machine.
func checkBusyMachine(in *Input) []Verdict {
	n, ok := busyMachine(in)
	if !ok {
		return nil
	}
	h := in.Report.Host
	v := Verdict{Fact: true, Finding: report.Finding{
		Title: fmt.Sprintf("other processes use the machine's CPUs: the service's threads waited for a CPU for %s of their runnable time", words.Percent(n.off)),
		Cause: report.CauseSched, Confidence: n.sure,
		Evidence: []report.Evidence{
			measured("share of runnable time in which threads waited for a CPU that other processes used", n.off, "share"),
			measured("CPUs of this machine", h.Facts.CPUs, "CPUs"),
			measured("CPUs used by the service", float64(*h.Lost.CPUNS)/float64(h.ToNS-h.FromNS), "CPUs"),
		},
		Fix: "reserve CPUs for the service (a cpuset, cpu.weight, a Kubernetes CPU request) or move the other processes to another machine, and record again",
	}}
	if n.lost > 0 {
		v.say(measured("minimum share of goroutines' running time in which other processes had the CPU", n.lost, "share"))
	}
	if n.others > 0 {
		v.say(measured("CPUs used by other processes", n.others, "CPUs"))
	}
	if p := h.Lost.PressureNS; p != nil {
		v.say(measured("share of time in which some process waited for a CPU (PSI)", min(1, float64(*p)/float64(h.ToNS-h.FromNS)), "share"))
	}
	in.costs(&v, func(c *report.Cause) float64 {
		switch c.Cause {
		case report.CauseCPU, report.CauseGCAssist, report.CauseSched, report.CauseSchedPoll:
			return n.lost
		case report.CauseSchedWake:
			return n.woken
		}
		return 0
	})
	return []Verdict{v}
}
