package capacity

import (
	"math"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/report"
)

// addCPU adds the CPU, or the CPU quota if that is smaller, as a resource. Its demand is the running time of all goroutines,
// the collector's too, and the short system calls of requests, which mostly compute in the kernel. The kernel's count for the
// process is an upper bound: it contains the search for runnable goroutines, of which a busy process does less, and the
// recording itself.
func (a *analysis) addCPU() {
	stats, facts := a.in.Stats, a.in.Facts
	r := &resource{kind: report.LimitCPU, groups: map[path.GroupID]float64{}, visits: 1, factor: 1, basis: "the time in which goroutines ran"}
	syscallNS := 0.0
	for _, one := range a.requests {
		if one.isLoad {
			syscallNS += float64(one.syscallNS)
			r.groups[one.group] += float64(one.runNS + one.syscallNS)
		}
	}
	r.busy = float64(stats.BusyNS)/float64(max(stats.SpanNS, 1)) + syscallNS/float64(a.sliceNS)
	r.error = 0.2
	if host := a.in.Report.Host; host != nil && host.Lost.CPUNS != nil && host.ToNS > host.FromNS && *host.Lost.CPUNS > 0 {
		if off := host.Lost.OffCPUNS; off != nil { // a goroutine runs, but its thread does not
			r.busy -= float64(*off) / float64(host.ToNS-host.FromNS)
		}
		counted := float64(*host.Lost.CPUNS) / float64(host.ToNS-host.FromNS)
		if r.busy = min(r.busy, counted); r.busy == counted {
			r.basis = "the CPU time of the process, by the kernel"
		}
		r.error = max(0.1, counted/r.busy-1)
	}
	r.servers = float64(stats.Procs)
	if facts.CPUs > 0 {
		r.servers = min(r.servers, facts.CPUs)
	}
	if facts.QuotaCPUs > 0 && facts.QuotaCPUs < r.servers {
		r.kind, r.servers = report.LimitQuota, facts.QuotaCPUs
	}
	if r.busy <= 0 || r.servers <= 0 {
		return
	}
	r.error += 1 / math.Sqrt(max(a.requestCount, 1))
	a.resources = append(a.resources, r)
}
