package text

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// host writes what the kernel's counters show: limits, lost time, and whether the network lost segments.
func (p *page) host() {
	h := p.report.Host
	if h == nil {
		if k := p.report.Kernel; k != nil {
			p.line()
			p.paragraph(span{bold, "kernel"}, indent, threadStates(k)...)
		}
		return
	}
	p.line()
	p.paragraph(span{bold, "host"}, indent, p.limitsAndUse(h)...)
	if lost := lostTime(h); len(lost) > 0 {
		p.paragraph(span{}, indent, lost...)
	}
	if k := p.report.Kernel; k != nil {
		p.paragraph(span{}, indent, threadStates(k)...)
	}
	p.network(&h.Network)
}

// threadStates describes what the threads of running goroutines did, by the kernel's events.
func threadStates(k *report.Kernel) []span {
	text := "by the kernel's events, goroutines that showed as running for " + words.Duration(k.RunningNS) + " had a CPU for " + words.Duration(k.CPUNS)
	for _, part := range []struct {
		ns   int64
		what string
	}{{k.CPUWaitNS, "waited for one"}, {k.ThrottledNS, "were throttled"}, {k.DiskNS, "waited for a disk"}, {k.StoppedNS, "were stopped"}} {
		if part.ns > 0 {
			text += ", " + part.what + " for " + words.Duration(part.ns)
		}
	}
	return []span{{plain, text}}
}

// limitsAndUse describes the process's limits of CPU and memory, how much of them it used, and the share of the trace's time
// with samples if that is below 95 %. If nothing of that is known, it gives the number of samples.
func (p *page) limitsAndUse(h *report.Host) []span {
	var parts []string
	f := &h.Facts
	switch {
	case f.QuotaCPUs > 0:
		s := "CPU quota " + cpus(f.QuotaCPUs)
		if f.QuotaDepth > 0 {
			s += " of an ancestor group"
		}
		if f.CPUs > 0 {
			s += ", on " + words.Count(f.CPUs, "CPU", "CPUs")
		}
		parts = append(parts, s)
	case f.CPUs > 0:
		s := "no CPU quota"
		if f.QuotaHidden {
			s += " visible"
		}
		parts = append(parts, s+", "+words.Count(f.CPUs, "CPU", "CPUs"))
	}
	if h.Lost.CPUNS != nil && h.ToNS > h.FromNS {
		parts = append(parts, "used "+cpus(float64(*h.Lost.CPUNS)/float64(h.ToNS-h.FromNS))+" of them")
	}
	if h.Memory.RSSMaxBytes > 0 {
		s := "memory up to " + words.Bytes(h.Memory.RSSMaxBytes)
		if f.MemoryBytes > 0 {
			s += " of " + words.Bytes(f.MemoryBytes)
		}
		parts = append(parts, s)
	}
	if f.GOMAXPROCS != "" {
		parts = append(parts, "GOMAXPROCS="+termtext.Head(f.GOMAXPROCS, 20)+" in its environment")
	}
	if h.Coverage < 0.95 {
		parts = append(parts, "samples of "+words.PercentOr0(h.Coverage)+" of the trace's time")
	}
	if len(parts) == 0 {
		parts = append(parts, words.Count(h.Samples, "sample", "samples"))
	}
	return []span{{plain, strings.Join(parts, "; ")}}
}

func cpus(n float64) string { return strconv.FormatFloat(n, 'f', 2, 64) }

// lostTime describes the time in which threads wanted to run and did not, by reason.
func lostTime(h *report.Host) []span {
	l := &h.Lost
	var parts []span
	add := func(ns *int64, description string, bad bool) {
		if ns == nil {
			return
		}
		if len(parts) > 0 {
			parts = append(parts, span{plain, ", "})
		}
		st := plain
		if bad && *ns > (h.ToNS-h.FromNS)/50 {
			st = boldRed
		}
		parts = append(parts, span{st, words.Duration(*ns) + " " + description})
	}
	quota := "to a CPU quota"
	if h.Quota.ThrottledPeriods > 0 {
		quota += fmt.Sprintf(" (%d of %d periods)", h.Quota.ThrottledPeriods, h.Quota.Periods)
	}
	add(l.QuotaNS, quota, true)
	add(l.RunQueueNS, "waiting for a CPU", true)
	if l.UnsplitNS != nil && *l.UnsplitNS > 0 {
		add(l.UnsplitNS, "more in throttled time", false)
	}
	add(l.UnexplainedNS, "unexplained", true)
	if len(parts) == 0 {
		return nil
	}
	return append([]span{{plain, "threads lost "}}, parts...)
}

// network writes whether the network is at fault, and the connections that lost the most.
func (p *page) network(n *report.HostNetwork) {
	word := map[report.NetworkVerdict]span{
		report.NetworkLost:    {boldRed, "network lost segments"},
		report.NetworkCleared: {green, "network not at fault"},
		report.NetworkUnknown: {plain, "network not judged"},
	}[n.Verdict]
	if word.text == "" {
		return
	}
	p.paragraph(span{}, indent, word, span{plain, ": " + breakable(termtext.Head(n.Text, maxWarning), p.width/2)})
	shown := 0
	for i := range n.Sockets {
		s := &n.Sockets[i]
		if s.Retransmitted == 0 || shown == 3 {
			continue
		}
		shown++
		description := s.Local + " -> " + s.Remote + ": " + strconv.FormatInt(s.Retransmitted, 10) + " segments sent again"
		if s.Peer {
			description += " by the other side"
		}
		if len(s.WhenNS) > 0 {
			description += ", first at " + words.Duration(s.WhenNS[0])
		}
		if s.RTTNS > 0 {
			description += ", round trip " + words.Duration(s.RTTNS)
		}
		p.paragraph(span{}, indent+2, span{plain, termtext.Head(description, 200)})
	}
}
