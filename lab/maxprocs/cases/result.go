//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// arms are the ways, as they stand in the table.
var arms = []string{"go", "peers", "whylate"}

// A machine is where cases were run.
type machine struct {
	Kernel, Cgroup, Go, When string
	CPUs                     int
	Emulated                 bool
	Rows                     []row
}

func (m *machine) add(r row) {
	for i := range m.Rows {
		if m.Rows[i].Case == r.Case {
			m.Rows[i] = r
			return
		}
	}
	m.Rows = append(m.Rows, r)
}

// A row is what came out of one case.
type row struct {
	Case string
	Skip string // why it was not run
	Arms map[string]*outcome
	Took time.Duration
}

// outcome is what one way did in one case, over the runs.
type outcome struct {
	Work   []float64 // units a second of each run that lived
	Killed int       // by the kernel, or by us because it did not end
	Last   answer
}

func (o *outcome) median() float64 {
	if len(o.Work) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(o.Work))
	return s[len(s)/2]
}

func (r *row) worse() bool {
	_, worse := judge(r.Arms["go"], r.Arms["whylate"])
	return worse
}

func (r *row) verdict() string {
	if r.Skip != "" {
		return "not run: " + r.Skip
	}
	v, _ := judge(r.Arms["go"], r.Arms["whylate"])
	return v
}

// judge compares whylate with another way: worse is a run more that is killed,
// or, where both live, less than four fifths of the work.
func judge(other, w *outcome) (verdict string, worse bool) {
	share := 0.0
	if m := other.median(); m > 0 {
		share = w.median() / m
	}
	switch {
	case w.Killed > other.Killed:
		return fmt.Sprintf("**killed %d times against %d**", w.Killed, other.Killed), true
	case w.Killed < other.Killed:
		return fmt.Sprintf("lives: killed %d times against %d", w.Killed, other.Killed), false
	case len(w.Work) == 0 || len(other.Work) == 0:
		return "both are killed", false
	case share < 0.8:
		return fmt.Sprintf("**%.2f of the work**", share), true
	}
	return fmt.Sprintf("%.2f of the work", share), false
}

// tables writes a table for each machine and says how many rows speak against
// whylate for no known reason.
func tables(out io.Writer, all []*machine) (bad int) {
	reasons := map[string]string{}
	for _, c := range cases {
		reasons[c.name] = c.known
	}
	for _, m := range all {
		where := ""
		if m.Emulated {
			where = ", an emulated machine"
		}
		fmt.Fprintf(out, "\n### Linux %s, cgroup %s%s\n\n", m.Kernel, m.Cgroup, where)
		fmt.Fprintln(out, "| case | go: Ps, killed, units/s | peers: Ps, GOMEMLIMIT, killed, units/s | whylate: Ps, GOMEMLIMIT, GOGC, killed, units/s | whylate against go | against peers |")
		fmt.Fprintln(out, "|---|---|---|---|---|---|")
		n, worse, runs := 0, 0, 0
		var better, skipped []string
		var took time.Duration
		for _, c := range cases {
			i := slices.IndexFunc(m.Rows, func(r row) bool { return r.Case == c.name })
			if i < 0 {
				continue
			}
			r := m.Rows[i]
			if r.Skip != "" {
				skipped = append(skipped, r.Case+" ("+r.Skip+")")
				continue
			}
			n++
			took += r.Took
			g, p, w := r.Arms["go"], r.Arms["peers"], r.Arms["whylate"]
			runs = max(runs, len(w.Work)+w.Killed)
			verdict, isWorse := judge(g, w)
			if isWorse {
				if worse++; reasons[r.Case] == "" {
					bad++
				} else {
					verdict += ": " + reasons[r.Case]
				}
			}
			against, isWorse := judge(p, w)
			if isWorse {
				better = append(better, fmt.Sprintf("%s (%s)", r.Case, against))
			}
			fmt.Fprintf(out, "| %s | %d, %d, %.0f | %d, %s, %d, %.0f | %d, %s, %s, %d, %.0f | %s | %s |\n", r.Case, g.Last.Procs, g.Killed, g.median(),
				p.Last.Procs, mib(p.Last.Limit), p.Killed, p.median(), w.Last.Procs, mib(w.Last.Limit), gogc(w.Last.GOGC), w.Killed, w.median(), verdict, against)
		}
		fmt.Fprintf(out, "\n%d cases, up to %d runs each way; worse than the runtime alone in %d. Peers were better in: %s.", n, runs, worse, orNone(better))
		if len(skipped) > 0 {
			fmt.Fprintf(out, " Not run: %s.", strings.Join(skipped, "; "))
		}
		fmt.Fprintf(out, "\n%s, %d CPUs, %s, %v in all.\n", m.When, m.CPUs, m.Go, took.Round(time.Second))
	}
	return bad
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, "; ")
}

func mib(n int64) string {
	if n <= 0 || n == 1<<63-1 {
		return "none"
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func gogc(n int) string {
	if n < 0 {
		return "off"
	}
	return fmt.Sprint(n)
}
