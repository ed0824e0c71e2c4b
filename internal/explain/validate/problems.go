// Package validate checks that what whylate makes of a trace is consistent in
// itself: that timelines follow the scheduler's rules, that the parts of every
// request add up to its latency, that sums agree with what they are sums of. What
// is right for one trace is judged by package timeline's oracle tests and by
// lab/truth. Tests of real programs, goldens, fuzzing and
// "whylate explain --validate" all call it.
package validate

import (
	"fmt"
	"strings"
)

// maxPerRule bounds the problems of one rule that are kept in words.
const maxPerRule = 5

// A Problem is one broken rule.
type Problem struct {
	Rule string // a stable name, such as "gaps"
	Text string // what was found, and where: times are ns on the trace's clock
}

// Problems collects broken rules. The zero value is ready for use.
type Problems struct {
	List  []Problem // the first few of each rule
	Total int       // all of them

	byRule map[string]int
}

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

// join adds the problems that another found.
func (p *Problems) join(o *Problems) {
	for _, q := range o.List {
		p.add(q.Rule, "%s", q.Text)
	}
	p.Total += o.Total - len(o.List)
}
