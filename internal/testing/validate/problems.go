// Package validate checks that the engine's results are consistent. The input is a pass and its report; the output is a
// list of broken rules.
//
// Rules of timelines: states follow each other as the scheduler allows, without gaps, and the spans of goroutines agree
// with the runs of threads. Rules of requests: segments and sums of each request add up to its latency. Rules of the
// report: groups have the requests that were walked, and no band exceeds the whole.
//
// The checks do not decide whether an answer is right for a trace; the oracle tests of package timeline and lab/truth
// do. Tests with real programs, golden tests and fuzz tests run them.
package validate

import (
	"fmt"
	"strings"
)

// maxPerRule bounds the problems of one rule that are stored.
const maxPerRule = 5

// A Problem is one broken rule.
type Problem struct {
	Rule string // a stable name, such as "gaps"
	Text string // the values and the place; times are in ns on the trace's clock
}

// Problems collects broken rules. The zero value is ready for use.
type Problems struct {
	List  []Problem // the first maxPerRule of each rule
	Total int       // number of all problems

	byRule map[string]int
}

// add counts a problem of a rule, and lists it if it is one of the first maxPerRule of that rule.
func (p *Problems) add(rule, format string, args ...any) {
	if p.byRule == nil {
		p.byRule = make(map[string]int)
	}
	p.Total++
	if p.byRule[rule]++; p.byRule[rule] <= maxPerRule {
		p.List = append(p.List, Problem{rule, fmt.Sprintf(format, args...)})
	}
}

// Err returns all problems as one error, or nil.
func (p *Problems) Err() error {
	if p.Total == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d broken rules", p.Total)
	for _, q := range p.List {
		fmt.Fprintf(&b, "\n%s: %s", q.Rule, q.Text)
	}
	if remaining := p.Total - len(p.List); remaining > 0 {
		fmt.Fprintf(&b, "\nand %d more", remaining)
	}
	return fmt.Errorf("%s", b.String())
}

// join adds the problems of another collection.
func (p *Problems) join(o *Problems) {
	for _, q := range o.List {
		p.add(q.Rule, "%s", q.Text)
	}
	p.Total += o.Total - len(o.List)
}
