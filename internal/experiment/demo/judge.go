package demo

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/report"
)

// A Fault is a known reason for a slow route.
type Fault struct {
	Description string // in words
	Path        string
	Handler     string             // end of the group's name
	Causes      []report.CauseName // the first cause of the group's time is one of these,
	Site        string             // in a function whose name ends so
}

// Faults are what the service has.
func Faults() []Fault {
	return []Fault{
		{"a sleep on another goroutine", "/report", "(*service).report", []report.CauseName{"sleep"}, "(*service).backoff"},
		{"a lock held across a slow write", "/order", "(*service).order", []report.CauseName{"network"}, "(*journal).append"},
		// The end of the wait that nobody polled for is the same lack of a CPU (sched-poll).
		{"CPU hogs that hold up a batching goroutine", "/price", "(*service).price", []report.CauseName{"sched", "sched-poll", "sched-wake"}, "(*service).ask"},
	}
}

// A Verdict says whether a report found a fault.
type Verdict struct {
	Fault Fault
	Found bool
	Group *report.Group // nil if the report has none for the fault's handler
	First *report.Cause // the group's first cause, nil if it has none
	Share float64       // of the group's time, with causes of the same kind at the same site
}

// Judge looks for every fault in a report: the first cause of its own group must be the right one, at the right place.
// Causes that the fault allows at one function are one cause here, as are the ways that lead there.
func Judge(r *report.Report) []Verdict {
	var out []Verdict
	for _, f := range Faults() {
		v := Verdict{Fault: f}
		for i := range r.Groups {
			if strings.HasSuffix(r.Groups[i].Name, f.Handler) && v.Group == nil {
				v.Group = &r.Groups[i]
			}
		}
		if v.Group != nil && len(v.Group.Bands) > 0 {
			v.addUpCauses()
		}
		out = append(out, v)
	}
	return out
}

// CountMissed counts the faults that were not found.
func CountMissed(verdicts []Verdict) int {
	n := 0
	for _, v := range verdicts {
		if !v.Found {
			n++
		}
	}
	return n
}

// addUpCauses adds up the causes of the band all.
func (v *Verdict) addUpCauses() {
	type key struct {
		cause report.CauseName
		site  string
	}
	sums := map[key]float64{}
	var best key
	causes := v.Group.All().Causes
	for i := range causes {
		c := &causes[i]
		if c.Cause == report.CauseOther {
			continue
		}
		k := key{cause: c.Cause}
		if c.Site != nil {
			k.site = c.Site.Func
		}
		if slices.Contains(v.Fault.Causes, k.cause) {
			k.cause = v.Fault.Causes[0]
		}
		sums[k] += c.Share
		if v.First == nil || sums[k] > v.Share {
			if k != best || v.First == nil {
				v.First = c
			}
			best, v.Share = k, sums[k]
		}
	}
	v.Found = v.First != nil && best.cause == v.Fault.Causes[0] && strings.HasSuffix(best.site, v.Fault.Site)
}
