package predict

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/scale"
)

// Who sleeps at one line repeatedly, and only looks at something between,
// polls: what ends the wait comes from elsewhere, and comes no earlier if the
// pauses are shorter. Only the last pause, in which it came, can be won.
//
// The time between pauses shows that they are looks: nothing but a little
// computing, no system call, no wait, and nobody who is given anything. An attempt that asks somebody is more than that, and so
// a retry is no poll.

// A row is sleeps at one place, one after the other, with only looks between.
type row struct {
	place
	n         int   // sleeps
	slept     int64 // by all of them
	shortest  int64 // of them
	from, end int64 // of the first and the last one
	polls     bool  // see Model.polls
}

// addRows marks the rows among parts that follow each other from a time on, of
// a goroutine of which gave reports whether it gave anybody anything in [from, to).
func (g *Graph) addRows(parts []part, now int64, gave func(from, to int64) bool) {
	at, last := -1, -1 // the row that goes on, and its last sleep
	var ran int64
	for i := range parts {
		p := &parts[i]
		now += p.ns
		switch p.cause {
		case cause.Sleep:
			if p.ticker {
				at = -1
				continue
			}
			if at < 0 || g.rows[at].site != p.site || float64(ran) > scale.Some*float64(p.ns) || gave(g.rows[at].end, now-p.ns) {
				at = len(g.rows)
				g.rows = append(g.rows, row{place: p.place, shortest: p.ns, from: now - p.ns})
			} else {
				parts[last].held = true
			}
			r := &g.rows[at]
			r.n, r.slept, r.shortest, r.end = r.n+1, r.slept+p.ns, min(r.shortest, p.ns), now
			p.row, last, ran = int32(at+1), i, 0
		case cause.CPU:
			ran += p.ns
		case cause.Sched, cause.SchedWake, cause.STW, cause.GCAssist, cause.GCWait, cause.Throttle:
		default:
			at = -1
		}
	}
}

// isHeld reports whether another event than the end of a sleep decides how long
// the request slept there.
func (g *Graph) isHeld(p *part) bool { return p.held && g.rows[p.row-1].polls }

// polls decides which rows of a group are polls.
func (m *Model) polls(g *group) {
	type seen struct {
		pauses            []int // of each request
		all, rows, uneven int
		polls             bool
	}
	at := map[int32]*seen{}
	for i := range g.graphs {
		sum := map[int32]int{}
		for k := range g.graphs[i].rows {
			r := &g.graphs[i].rows[k]
			key := m.key(r.place)
			x := entry.In(at, key)
			sum[key] += r.n
			x.all += r.n
			x.rows++
			if r.slept > 2*int64(r.n)*r.shortest {
				x.uneven++
			}
		}
		for key, n := range sum {
			at[key].pauses = append(at[key].pauses, n)
		}
	}
	for _, s := range at {
		ns := s.pauses
		slices.Sort(ns)
		common := 0
		for first, i := 0, 0; i < len(ns); i++ {
			if ns[i] != ns[first] {
				first = i
			}
			common = max(common, i+1-first)
		}
		s.polls = s.all >= scale.Few*s.rows && float64(common) < scale.NearlyAll*float64(len(ns)) && 2*s.uneven < s.rows
	}
	for i := range g.graphs {
		for k := range g.graphs[i].rows {
			r := &g.graphs[i].rows[k]
			r.polls = at[m.key(r.place)].polls
		}
	}
}

// A Poll is how requests of a group wait for something that comes from
// elsewhere, on average.
type Poll struct {
	Pauses  float64
	PauseNS int64 // of one
	AfterNS int64 // from the first pause to what came
}

// Polls returns how requests of a group poll at the sleeps that changes are
// about; nil if they do not, or if most of that time is something else.
func (m *Model) Polls(id string, changes []Change) *Poll {
	g := m.groups[id]
	if g == nil {
		return nil
	}
	m.prepare()
	t := m.compile(changes)
	var all, slept, rows, pauses, after float64
	for i := range g.graphs {
		gr := &g.graphs[i]
		for k := range gr.parts {
			p := &gr.parts[k]
			if p.cause != cause.Sleep || !t.isMet(p) {
				continue
			}
			all += gr.weight * float64(p.ns)
			if p.row > 0 && gr.rows[p.row-1].polls {
				slept += gr.weight * float64(p.ns)
				if !p.held {
					r := &gr.rows[p.row-1]
					rows += gr.weight
					pauses += gr.weight * float64(r.n)
					after += gr.weight * float64(r.end-r.from)
				}
			}
		}
	}
	if slept == 0 || slept < scale.Half*all {
		return nil
	}
	return &Poll{Pauses: pauses / rows, PauseNS: int64(slept / pauses), AfterNS: int64(after / rows)}
}
