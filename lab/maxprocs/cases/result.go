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
	Kernel, Cgroup, Go string
	// First and Last are the days of its first and last run.
	First, Last string
	CPUs        int
	Emulated    bool
	Rows        []*row
}

func (m *machine) find(name string) *row {
	for _, r := range m.Rows {
		if r.Case == name {
			return r
		}
	}
	return nil
}

// add adds what a run brought.
func (m *machine) add(x row) {
	r := m.find(x.Case)
	if r == nil {
		m.Rows = append(m.Rows, &x)
		return
	}
	r.Skip, r.Rounds, r.Took = x.Skip, append(r.Rounds, x.Rounds...), r.Took+x.Took
}

// A row is what came out of one case.
type row struct {
	Case   string
	Skip   string  `json:",omitempty"` // why it was not run
	Rounds []round `json:",omitempty"`
	Took   time.Duration
}

// A round is one run each way, at the same time or one after another, so that a
// slow minute of the machine's hits all alike.
type round map[string]*result

// result is what one way did in one round.
type result struct {
	// Killed says that it was ended by the kernel, or by us because it did not end.
	Killed bool `json:",omitempty"`
	answer
	// High is how often the kernel slowed it down at memory.high, Stall its
	// microseconds of waiting for memory; cgroup v2 counts both.
	High, Stall int64 `json:",omitempty"`
}

// done reports whether a case has been run often enough: one that looks worse
// with whylate is run twice as often.
func (r *row) done(runs int) bool {
	return r.Skip != "" || len(r.Rounds) >= 2*runs || len(r.Rounds) >= runs && !looksWorse(r.Rounds)
}

func looksWorse(rounds []round) bool {
	c := compare(rounds, "go")
	return c.killed > c.otherKilled || len(c.shares) > 0 && c.median() < loss
}

const (
	// A fifth of the work less is a loss ...
	loss = 0.8
	// ... where so many rounds were run, and most of them say so: in four of five
	// there is less work by a tenth at least.
	leastPairs = 3
	clearly    = 0.9
)

// A comparison holds whylate against another way, round by round.
type comparison struct {
	killed, otherKilled int
	// shares are whylate's work as a share of the other's, of the rounds in which
	// both lived, sorted.
	shares []float64
}

func compare(rounds []round, other string) (c comparison) {
	for _, r := range rounds {
		o, w := r[other], r["whylate"]
		if o.Killed {
			c.otherKilled++
		}
		if w.Killed {
			c.killed++
		}
		if !o.Killed && !w.Killed && o.Work > 0 {
			c.shares = append(c.shares, w.Work/o.Work)
		}
	}
	slices.Sort(c.shares)
	return c
}

func (c *comparison) median() float64 { return median(c.shares) }

// loses reports whether enough rounds say that a fifth of the work is lost.
func (c *comparison) loses() bool {
	n := len(c.shares)
	if n < leastPairs || c.median() >= loss {
		return false
	}
	clear := 0
	for _, s := range c.shares {
		if s < clearly {
			clear++
		}
	}
	return 5*clear >= 4*n
}

// judge says how whylate did, and whether that is worse: a run more that is
// killed, or a fifth of the work lost.
func (c *comparison) judge() (verdict string, worse bool) {
	work := ""
	if len(c.shares) > 0 {
		work = fmt.Sprintf("%.2f (%.2f to %.2f)", c.median(), c.shares[0], c.shares[len(c.shares)-1])
		if len(c.shares) == 1 {
			work = fmt.Sprintf("%.2f", c.median())
		}
	}
	loses := c.loses()
	switch {
	case loses:
		work = "**" + work + "**"
	case len(c.shares) > 0 && c.median() < loss:
		work += ", not settled"
	}
	deaths := fmt.Sprintf("killed %d times against %d", c.killed, c.otherKilled)
	if work != "" && c.killed != c.otherKilled {
		deaths += "; else " + work
	}
	switch {
	case c.killed > c.otherKilled:
		return "**" + deaths + "**", true
	case c.killed < c.otherKilled:
		return "lives: " + deaths, false
	case work == "":
		return fmt.Sprintf("killed %d times each", c.killed), false
	case c.killed > 0:
		return fmt.Sprintf("killed %d times each; else %s", c.killed, work), loses
	}
	return work, loses
}

func median(sorted []float64) float64 {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// work is the median of the runs that lived, and how many were killed.
func work(rounds []round, arm string) (units float64, killed int) {
	var all []float64
	for _, r := range rounds {
		if r[arm].Killed {
			killed++
		} else {
			all = append(all, r[arm].Work)
		}
	}
	slices.Sort(all)
	return median(all), killed
}

// settings are those with which a way ended its last run that lived.
func settings(rounds []round, arm string) string {
	for _, r := range slices.Backward(rounds) {
		if x := r[arm]; !x.Killed {
			s := fmt.Sprint(x.Procs)
			if arm != "go" {
				s += ", " + mib(x.Limit)
			}
			if arm == "whylate" {
				s += ", " + gogc(x.GOGC)
			}
			return s
		}
	}
	return "-"
}

// tables writes a table for each machine and says how many rows speak against
// whylate for no known reason.
func tables(out io.Writer, all []*machine, runs int) (bad int) {
	for _, m := range all {
		where := ""
		if m.Emulated {
			where = ", an emulated machine"
		}
		fmt.Fprintf(out, "\n### Linux %s, cgroup %s%s\n\n", m.Kernel, m.Cgroup, where)
		fmt.Fprintln(out, "| case | runs | go: Ps; units/s; killed | peers: Ps, GOMEMLIMIT; units/s; killed | whylate: Ps, GOMEMLIMIT, GOGC; units/s; killed | work against go | against peers |")
		fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
		var worse, better, skipped []string
		n, enough, rounds := 0, 0, 0
		var took time.Duration
		for _, c := range cases {
			r := m.find(c.name)
			if r == nil {
				continue
			}
			if r.Skip != "" {
				skipped = append(skipped, fmt.Sprintf("%s (%s)", r.Case, r.Skip))
				continue
			}
			n++
			if len(r.Rounds) >= runs {
				enough++
			}
			rounds += len(r.Rounds)
			took += r.Took
			g, p := compare(r.Rounds, "go"), compare(r.Rounds, "peers")
			verdict, isWorse := g.judge()
			if isWorse {
				worse = append(worse, r.Case)
				if c.known == "" {
					bad++
				} else {
					verdict += ": " + c.known
				}
			}
			against, isWorse := p.judge()
			if isWorse || p.loses() {
				better = append(better, fmt.Sprintf("%s (%s)", r.Case, against))
			}
			fmt.Fprintf(out, "| %s | %d ", r.Case, len(r.Rounds))
			for _, arm := range arms {
				units, killed := work(r.Rounds, arm)
				fmt.Fprintf(out, "| %s; %.0f; %d ", settings(r.Rounds, arm), units, killed)
			}
			fmt.Fprintf(out, "| %s | %s |\n", verdict, against)
		}
		days := m.First
		if m.Last != m.First {
			days += " to " + m.Last
		}
		fmt.Fprintf(out, "\n%d places, %d of them with %d runs or more, %d runs of each way in all, %v. Worse than the runtime alone: %s. Peers are better: %s.", n, enough, runs, rounds, took.Round(time.Second), orNone(worse), orNone(better))
		if len(skipped) > 0 {
			fmt.Fprintf(out, " Not run: %s.", strings.Join(skipped, "; "))
		}
		fmt.Fprintf(out, "\n%s, %d CPUs, %s.\n", days, m.CPUs, m.Go)
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
