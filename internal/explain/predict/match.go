package predict

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// compile finds out which places changes are about.
func (m *Model) compile(changes []Change) *trial {
	t := &trial{m: m}
	for i := range changes {
		c := trialChange{Change: changes[i]}
		if c.Setting.Name != "" {
			if c.effect, _, _ = m.Resolve(c.Setting); c.effect == nil {
				c.effect = new(effect) // refused: Find says why
			}
			c.weights = m.touched(c.effect)
		} else {
			c.weights = m.weigh(&changes[i])
		}
		t.changes = append(t.changes, c)
	}
	return t
}

// weigh returns, by place, which part of its time a change is about.
func (m *Model) weigh(c *Change) []float64 {
	s := m.site(c.Site)
	out := make([]float64, len(m.places))
	for i, p := range m.places {
		if c.has(p.cause) {
			out[i] = m.part(s, p)
		}
	}
	return out
}

// A siteMatch is a site as somebody wrote it.
type siteMatch struct {
	any  bool
	fn   string
	file string
	line int
	fns  map[tracefmt.StringID]bool // functions it names, as found so far
	from *siteMatch                 // what it must have been called from, where that is known; nil: anything
}

func (m *Model) site(text string) *siteMatch {
	text, from, limited := strings.Cut(text, callerMark)
	s := &siteMatch{any: text == "", fn: text, fns: make(map[tracefmt.StringID]bool)}
	if limited {
		s.from = m.site(from)
	}
	if i := strings.LastIndexByte(text, ':'); i > 0 {
		if n, err := strconv.Atoi(text[i+1:]); err == nil && n > 0 {
			s.file, s.line, s.fn = text[:i], n, ""
		}
	}
	return s
}

// endsIn reports whether a name ends in another one, from the beginning of a
// word on.
func endsIn(name, end string) bool {
	rest, ok := strings.CutSuffix(name, end)
	return ok && (rest == "" || strings.ContainsAny(rest[len(rest)-1:], "./"))
}

func (m *Model) names(s *siteMatch, f tracefmt.FrameID) bool {
	switch from := m.syms.Frame(f).Caller; {
	case from == 0:
		return m.namesLine(s, f) // what led to it, if anything did, was a wait
	case s.from != nil:
		return m.namesLine(s, f) && m.namesLine(s.from, from)
	default:
		return m.namesLine(s, f) || m.namesLine(s, from)
	}
}

func (m *Model) namesLine(s *siteMatch, f tracefmt.FrameID) bool {
	fr := m.syms.Unwrapped(f)
	if s.line != 0 {
		return int(fr.Line) == s.line && (endsIn(m.syms.String(fr.File), s.file) || endsIn(m.syms.String(fr.Func), s.file))
	}
	is, ok := s.fns[fr.Func]
	if !ok {
		is = endsIn(m.syms.String(fr.Func), s.fn)
		s.fns[fr.Func] = is
	}
	return is
}

// part returns which part of a place's time a site has.
func (m *Model) part(s *siteMatch, p place) float64 {
	if s.any {
		return 1
	}
	if p.site != 0 && m.names(s, p.site) {
		return 1
	}
	if p.cause != cause.CPU {
		return 0
	}
	if p.stack != 0 {
		for _, f := range m.syms.Stack(p.stack) {
			if m.names(s, f) {
				return 1
			}
		}
		if !p.near {
			return 0
		}
	}
	// Running time without a stack of its own: as what was seen below the same
	// function.
	below, total := m.under(m.syms.Frame(p.site).Func)
	if total == 0 {
		return 0
	}
	var of int64
	for f, ns := range below {
		if m.names(s, f) {
			of += ns
		}
	}
	return float64(of) / float64(total)
}

// Find returns an error, with the nearest names, if a change meets nothing in
// any group.
//
// It says of a setting on what the answer rests, and returns a Refusal where
// the trace does not tell.
func (m *Model) Find(c *Change) (note string, err error) {
	m.prepare()
	if c.Setting.Name != "" {
		_, note, err = m.Resolve(c.Setting)
		return note, err
	}
	t := m.compile([]Change{*c})
	for _, g := range m.groups {
		if t.meets(g) {
			return "", nil
		}
	}
	what := "no request of the sample spent time"
	if c.Cause == Queue {
		what = "no request of the sample waited for others to be served"
	} else if c.Cause != "" {
		what += " on " + string(c.Cause)
	}
	if c.Site != "" {
		what += " at " + c.Site
	}
	if c.Cause == "" && isCause(report.CauseName(c.Site)) {
		what += "; all time of a cause, at any site, is " + c.Site + "@"
	} else if near := m.nearest(c); len(near) > 0 {
		what += "; it has " + strings.Join(near, ", ")
	}
	return "", fmt.Errorf("what-if %s: %s", c, what)
}

// maxNear bounds the names suggested.
const maxNear = 5

// nearest returns names of places that look like what was meant, or else those
// that most time was spent at.
func (m *Model) nearest(c *Change) []string {
	total := map[string]float64{}
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[id]
		for i := range g.graphs {
			gr := &g.graphs[i]
			for k := range gr.parts {
				p := &gr.parts[k]
				if p.site == 0 || c.Site == "" && !c.has(p.cause) {
					continue
				}
				fr := m.syms.Unwrapped(p.site)
				name := path.Base(m.syms.String(fr.Func))
				if strings.Contains(c.Site, ":") {
					name = path.Base(m.syms.String(fr.File)) + ":" + strconv.Itoa(int(fr.Line))
				}
				total[p.cause.String()+"@"+name] += gr.weight * float64(p.ns)
			}
		}
	}
	want := path.Base(strings.ToLower(c.Site))
	far := map[string]int{}
	for n := range total {
		_, site, _ := strings.Cut(strings.ToLower(n), "@")
		switch {
		case want == "":
		case strings.Contains(site, want) || strings.Contains(want, site[strings.LastIndexByte(site, '.')+1:]):
			far[n] = 0
		default:
			far[n] = min(distance(site[strings.LastIndexByte(site, '.')+1:], want[strings.LastIndexByte(want, '.')+1:]), 4)
		}
	}
	all := slices.SortedFunc(maps.Keys(total), func(a, b string) int {
		return cmp.Or(cmp.Compare(far[a], far[b]), cmp.Compare(total[b], total[a]), cmp.Compare(a, b))
	})
	return all[:min(len(all), maxNear)]
}

// distance is the number of letters to change (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
