package debugz

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/internal/quantity"
)

// writeText writes the page as text. It ignores errors of the connection, because the
// client is gone.
func (p *page) writeText(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintf(w, "process\t%d, %s\n", p.PID, p.Go)
	fmt.Fprintf(w, "GOMAXPROCS\t%d", p.GOMAXPROCS)
	if p.Tune != nil {
		fmt.Fprintf(w, ", set by: %s", p.Tune.ProcsBy)
	}
	fmt.Fprintf(w, "\nNumCPU\t%d, as it was at the start\n", p.NumCPU)
	if p.LogLevel != "" {
		fmt.Fprintf(w, "log level\t%s; POST level=debug&for=5m changes it\n", p.LogLevel)
	}
	if p.Error != "" {
		fmt.Fprintf(w, "limits\t%s\n", p.Error)
	}
	if l := p.Limits; l != nil {
		fmt.Fprintf(w, "\nCPU\t%s, cgroup %s\n", numberText(l.CPU.Effective, "CPUs"), l.CPU.Version)
		for _, b := range l.CPU.Bounds {
			fmt.Fprintf(w, "%s %s\t%s\t%s\t%s\n", boundMark(b.Won), b.Kind, numberText(b.CPUs, "CPUs"), b.File, b.Why)
		}
		fmt.Fprintf(w, "\nmemory\t%s, cgroup %s\n", sizeText(l.Memory.Effective), l.Memory.Version)
		for _, b := range l.Memory.Bounds {
			fmt.Fprintf(w, "%s %s\t%s\t%s\t%s\n", boundMark(b.Won), b.Kind, sizeText(b.Bytes), b.File, b.Why)
		}
		for _, n := range l.Notes {
			fmt.Fprintf(w, "note\t%s\n", n)
		}
	}
	if len(p.Traps) > 0 {
		fmt.Fprintf(w, "\ntraps\n")
	}
	for _, t := range p.Traps {
		fmt.Fprintf(w, "%s\t%s: %s\n\tto do: %s\n", t.Code, t.Severity, t.Text, t.Fix)
	}
	if t := p.Tune; t != nil {
		fmt.Fprintf(w, "\nGOGC\t%d, effectively %s; collecting takes %s of the CPU used\n", t.GOGC, numberOrUnknown(t.EffectiveGOGC, func(n float64) string { return fmt.Sprintf("%.0f", n) }), numberOrUnknown(t.GCShare, quantity.Share))
		fmt.Fprintf(w, "headroom\t%s\n", sizeText(t.Headroom))
		fmt.Fprintf(w, "throttled\t%s (%s): own %v, ancestor %v, in %d of %d periods\n", t.Throttled.Verdict, t.Throttled.Evidence, t.Throttled.Own, t.Throttled.Ancestor, t.Throttled.ThrottledPeriods, t.Throttled.Periods)
		for _, e := range t.Events {
			fmt.Fprintf(w, "%s\t%s\n", e.Time.UTC().Format(time.RFC3339), e)
			source := cmp.Or(e.Source, "missing")
			fmt.Fprintf(w, "\tby %s; to undo: %s\n", source, e.Undo)
		}
	}
	if l := p.Probe; l != nil {
		fmt.Fprintf(w, "\nfreezes\t%d since %s: %v in total, p50 %v, max %v\n", l.Freezes, l.Started.UTC().Format(time.RFC3339), l.FreezeTime, l.FreezeP50, l.FreezeMax)
		var byVerdict []string
		for _, v := range cgroup.Verdicts() {
			byVerdict = append(byVerdict, fmt.Sprintf("%s %d", v, l.FreezesByVerdict[string(v)]))
		}
		fmt.Fprintf(w, "by verdict\t%s\n", strings.Join(byVerdict, ", "))
		fmt.Fprintf(w, "quota\t%v own, %v ancestor (CPU time)\n", l.Throttled.Own, l.Throttled.Ancestor)
		fmt.Fprintf(w, "run queue\t%v, and %v perhaps due to the quota\n", l.RunQueue, l.Unsplit)
		fmt.Fprintf(w, "steal\t%v, whole machine\n", l.Steal)
		if len(l.NotMeasurable) > 0 {
			fmt.Fprintf(w, "not measurable\t%s\n", strings.Join(l.NotMeasurable, ", "))
		}
	}
	if s := p.Flight; s != nil {
		writeFlight(w, s)
	}
}

// writeFlight writes the state of a flight recorder.
func writeFlight(w io.Writer, s *flight.State) {
	does := "running"
	if !s.Recording {
		does = "not running: " + s.Why
	}
	fmt.Fprintf(w, "\nflight recorder\t%s\n", does)
	fmt.Fprintf(w, "its cost\t%s of the CPUs by %s", quantity.Cost(s.Cost), s.CostFrom)
	if s.Budget > 0 {
		fmt.Fprintf(w, " (budget %s)", quantity.Share(s.Budget))
	}
	fmt.Fprintf(w, "; the kernel's counters %s\n", quantity.Cost(s.OwnCost))
	fmt.Fprintf(w, "recordings\t%d kept, %s on disk, %d failed\n", s.Kept, sizeText(s.DiskBytes), s.Failed)
	if s.Last != "" {
		fmt.Fprintf(w, "the last\t%s, %s in %v\n", s.Last, sizeText(s.LastBytes), s.LastSnapshot.Round(time.Millisecond))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Triggers)) {
		fmt.Fprintf(w, "%s\t%d moments, %d in no recording\n", k, s.Triggers[k], s.Missed[k])
	}
	if u := s.Upload; u != nil {
		fmt.Fprintf(w, "upload\t%d sent, %d refused, %d failed attempts, %d waiting\n", u.Sent, u.Refused, u.Failed, u.Waiting)
		if u.Held > 0 {
			fmt.Fprintf(w, "held back\t%d: the collector rejects this token\n", u.Held)
		}
		if u.LastError != "" {
			fmt.Fprintf(w, "last upload error\t%s\n", u.LastError)
		}
	}
	if s.Unwatched {
		fmt.Fprintf(w, "marks\tanother watcher takes them: no request is seen\n")
	}
	if s.LastError != "" {
		fmt.Fprintf(w, "last error\t%s\n", s.LastError)
	}
}

// boundMark returns "*" for the tightest bound, which won, and a blank for others.
func boundMark(won bool) string {
	if won {
		return "*"
	}
	return " "
}

// numberText returns a number with its unit, or "-" unless the number is above 0.
func numberText(n float64, unit string) string {
	if n <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.4g %s", n, unit)
}

// numberOrUnknown formats a number by text, and returns "unknown" for a negative one.
func numberOrUnknown(n float64, text func(float64) string) string {
	if n < 0 {
		return "unknown"
	}
	return text(n)
}

// sizeText returns a number of bytes in binary units, "-" for 0 and "unknown" for a
// negative one.
func sizeText(n int64) string {
	switch {
	case n < 0:
		return "unknown"
	case n == 0:
		return "-"
	}
	return quantity.Binary(n)
}
