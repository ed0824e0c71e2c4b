package demo

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/report"
)

// A Fault is a known reason for a slow route.
type Fault struct {
	Description string // for users
	Path        string
	Handler     string             // suffix of the group's name
	Causes      []report.CauseName // possible causes of most of the group's time
	Site        string             // suffix of the name of the function at the cause's site
}

// Faults returns the faults that the service has.
func Faults() []Fault {
	return []Fault{
		{"a sleep on another goroutine", "/report", "(*service).report", []report.CauseName{"sleep"}, "(*service).backoff"},
		{"a lock held across a slow write", "/order", "(*service).order", []report.CauseName{"network"}, "(*journal).append"},
		// A wait that no P polled for (sched-poll) is the same lack of a CPU.
		{"CPU hogs that hold up a batching goroutine", "/price", "(*service).price", []report.CauseName{"sched", "sched-poll", "sched-wake"}, "(*service).queryStore"},
	}
}

// A Verdict reports whether a report found a fault.
type Verdict struct {
	Fault Fault
	Found bool
	Group *report.Group // group of the fault's handler; nil if the report has none
	First *report.Cause // the group's first cause, nil if it has none
	Share float64       // share of the group's time, including causes of the same kind at the same site
}

// Judge searches a report for every fault: the first cause of the fault's group must be one of its causes, at its site. Causes of a fault at one
// function count as one, by whatever path they are reached. There is one verdict for each fault, in the order of Faults.
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

// CountMissed counts the faults that the report did not find.
func CountMissed(verdicts []Verdict) int {
	n := 0
	for _, v := range verdicts {
		if !v.Found {
			n++
		}
	}
	return n
}

// addUpCauses adds up the causes of all requests of the group by cause and function, and sets First, Share and Found by the largest sum.
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
