package screen

import (
	"bufio"
	"fmt"
	"io"
	"slices"

	"github.com/whylate/whylate/internal/judge/watch"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/report"
)

// A Plain writes a block of lines for every poll, for logs and for terminals that cannot be drawn on.
type Plain struct {
	out           io.Writer
	width         int
	color         bool
	shownFindings map[string][]watch.Finding // by service: findings that were shown and have not vanished
}

// NewPlain returns a writer of lines of at most columns columns (at least 40; 200 if columns is 0), in colour if color is set.
func NewPlain(out io.Writer, columns int, color bool) *Plain {
	if columns <= 0 {
		columns = 200
	}
	return &Plain{out: out, width: max(columns, 40), color: color, shownFindings: map[string][]watch.Finding{}}
}

// plainGroups is the number of groups of a block.
const plainGroups = 5

// Write writes the result of a poll: its source, the first plainGroups groups, and the findings that appeared or vanished since
// the last call for this service, which p remembers. The first call writes all. Of a failed poll it writes the problem only.
func (p *Plain) Write(s *watch.State) error {
	w := bufio.NewWriter(p.out)
	line := func() *line { return newLine(p.width, p.color) }
	head := line().add(dim, s.Time.Format("15:04:05")+" ").add(bold, termtext.Middle(s.Service, max(p.width/3, 20)))
	if s.Failures > 0 {
		fmt.Fprintln(w, head.add(red, "  "+s.Problem))
		return w.Flush()
	}
	fmt.Fprintln(w, head.add(dim, "  "+pollText(s, p.width)))
	if s.Note != "" {
		fmt.Fprintln(w, line().add(yellow, "  "+s.Note))
	}
	name := 0
	groups := s.Groups[:min(len(s.Groups), plainGroups)]
	for i := range groups {
		name = max(name, termtext.Width(groups[i].Name))
	}
	name = min(name, max(p.width/4, 14))
	for i := range groups {
		g := &groups[i]
		if g.Idle {
			continue
		}
		l := line().add(plain, "  ").addLeft(plain, g.Name, name).addRight(dim, perSecond(g)+"/s", 8).add(dim, "  p50 ").addRight(plain, median(g), 7).add(dim, "  p99 ").addRight(bold, slowLatency(g), 8)
		if len(g.Causes) > 0 {
			addLargestCause(l.add(plain, "  "), &g.Causes[0], names.CauseStyle(g.Causes[0].Cause))
		}
		fmt.Fprintln(w, l)
	}
	if len(groups) == 0 {
		fmt.Fprintln(w, line().add(dim, "  no requests were found"))
	}
	var shown []watch.Finding
	for i := range s.Findings {
		f := &s.Findings[i]
		before := slices.ContainsFunc(p.shownFindings[s.Service], func(o watch.Finding) bool { return o.IsSameFault(f) })
		switch {
		case f.Severity == report.SeverityInfo:
		case f.State != watch.StateGone:
			shown = append(shown, *f)
			if !before {
				p.finding(w, f, string(f.State))
			}
		case before:
			p.finding(w, f, string(watch.StateGone))
		}
	}
	p.shownFindings[s.Service] = shown
	return w.Flush()
}

// finding writes a line about a finding; when says how it is since the last poll, such as "new".
func (p *Plain) finding(w io.Writer, f *watch.Finding, when string) {
	l := newLine(p.width, p.color).add(plain, "  ").addLeft(bold, when, 6).addLeft(names.SeverityStyle(f.Severity), string(f.Severity), 7).add(dim, string(f.Code)+" ").add(plain, f.Title)
	l.add(dim, inGroups(f))
	fmt.Fprintln(w, l)
}
