package queues

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A request's path shows that it waited for another goroutine, not whether
// others waited for that one at the same time, each for a turn of its own. That
// is what turns tell: in a slice of every generation, which requests were on
// which goroutine's time, and when.

// turnsPieces bounds how many stretches of one request are looked at.
const turnsPieces = 32

// turnKey is where a goroutine is that requests of a kind wait for. Where it
// computes is seen now and then only, so for running time site is where it is
// waited for.
type turnKey struct {
	kind  request.Kind
	cause cause.Cause
	site  tracefmt.FrameID
}

// A turn is a stretch of one request's path on somebody else's goroutine.
type turn struct {
	key        turnKey
	g          uint64 // that goroutine
	start, end int64
	last       bool // the request's last one on g at key: its own turn
	weight     int64
	asked      bool // g itself wrote what is answered in it
	locked     bool // reached through a lock, before anything that others hand over
	ahead      bool // g was at it already when the request began to wait for g
}

// turnSum adds up the turns of one key.
type turnSum struct {
	waited  int64 // sum of turns
	busy    int64 // the same, each instant of a goroutine once
	taken   int64 // of waited: on goroutines that were serving other requests
	locked  int64 // of waited: behind a lock, whose holder alone has the turn
	served  int64 // requests, each with the last of its turns
	asked   int64 // of them, those for which the goroutine asked a peer itself
	ahead   int64 // of them, those for which nothing was begun: what the goroutine did when they came was for others
	ends    int64 // instants at which those ended: less than served if several end at once
	servers map[uint64]struct{}
	most    int // of them at once, from the first turn to the last

	marks []mark
}

// A sleepSum adds up the sleeps, of the turns of one key, that were looked up in full.
type sleepSum struct {
	n       int64
	early   int64 // of them, under way when the request came to them
	ns      int64 // their lengths
	squares int64 // in us
	partNS  int64 // the parts that requests waited through
}

func (s sleepSum) plus(o sleepSum) sleepSum {
	return sleepSum{s.n + o.n, s.early + o.early, s.ns + o.ns, s.squares + o.squares, s.partNS + o.partNS}
}

// A mark is an instant at which turns on a goroutine ended.
type mark struct {
	g uint64
	t int64
}

// marksMost bounds the marks kept of one key: enough to see a period.
const marksMost = 512

// addTurns takes note of where the request's path was on other goroutines.
func (p *part) addTurns(w *path.Walked) {
	r := w.Req
	if r.IsServed() { // its goroutine belongs to one request at a time, not to all that wait for it
		p.serving[r.G] = struct{}{}
	}
	key := func(s *cause.Segment) turnKey {
		if c := s.Code.Cause(); c != cause.CPU {
			return turnKey{r.Kind, c, s.Site}
		}
		return turnKey{r.Kind, cause.CPU, p.stage.IDs.LastSite(w.ChainOf(s))}
	}
	first, waits := len(p.turns), w.Waits()
	for i := len(w.Segments) - 1; i >= 0; i-- {
		s := &w.Segments[i]
		if s.Via < 0 || s.G == r.G || !hasTurns(s.Code.Cause()) || p.stage.IDs.Served(w.ChainOf(s)) {
			continue // or the request that is served in its stead has the turn
		}
		ahead := s.Start <= waits[outermost(waits, s.Via)].Start
		if n := len(p.turns); n > first && p.turns[n-1].g == s.G && p.turns[n-1].key == key(s) && p.turns[n-1].start == s.End {
			p.turns[n-1].start, p.turns[n-1].ahead = s.Start, ahead
			continue
		}
		if len(p.turns)-first >= turnsPieces {
			break // the last ones are its own turns
		}
		p.turns = append(p.turns, turn{
			key: key(s), g: s.G, start: s.Start, end: s.End, weight: w.Counted(),
			asked: waits[s.Via].Parent >= 0 && p.roundTrips(waits[s.Via].Stack), ahead: ahead, locked: behindLock(waits, s.Via),
		})
	}
	mine := p.turns[first:]
	slices.Reverse(mine)
	for i := range mine {
		a := &mine[i]
		a.last = !slices.ContainsFunc(mine[i+1:], func(b turn) bool { return b.key == a.key })
		a.asked = a.last && a.key.cause == cause.Network && (a.asked || p.asked(w, a))
	}
	if w.Sampled && len(w.Looked) < path.MostLooked {
		for i := range mine {
			if mine[i].key.cause == cause.Sleep {
				p.addSleep(&mine[i])
			}
		}
	}
}

// behindLock reports whether what a request waits for is reached through a lock, before anything that others hand over.
func behindLock(waits []critpath.FollowedWait, i int32) (lock bool) {
	for ; i >= 0; i = waits[i].Parent {
		switch waits[i].Kind {
		case critpath.WaitLock, critpath.WaitOnce:
			lock = true
		case critpath.WaitChan, critpath.WaitSend, critpath.WaitSelect, critpath.WaitCond:
			lock = false
		}
	}
	return lock
}

// outermost returns the wait of the request's own that leads to another one.
func outermost(waits []critpath.FollowedWait, i int32) int32 {
	for waits[i].Parent >= 0 {
		i = waits[i].Parent
	}
	return i
}

// asked reports whether a goroutine that waits for an answer has written to a connection since the answer before: then it asks for one
// at a time. Who reads the answers of many does not write what they ask. A connection of HTTP/1 has one at a time: of that a worker waits for
// the reader as long as it asks.
func (p *part) asked(w *path.Walked, a *turn) bool {
	for i := len(w.Steps) - 1; i >= 0; i-- {
		st := &w.Steps[i]
		if st.G != a.g || st.End > a.start {
			continue
		}
		switch st.Kind {
		case critpath.Network:
			return false
		case critpath.Syscall:
			if p.writes(st.Stack) {
				return true
			}
		}
	}
	return false
}

// roundTrips reports whether a stack waits for the answer of a connection of HTTP/1.
func (p *part) roundTrips(stack tracefmt.StackID) bool {
	return slices.ContainsFunc(p.stage.Syms.Stack(stack), func(fr tracefmt.FrameID) bool {
		return p.stage.Syms.String(p.stage.Syms.Frame(fr).Func) == "net/http.(*persistConn).roundTrip"
	})
}

// hasTurns reports whether a cause can be a turn of somebody's.
func hasTurns(c cause.Cause) bool {
	switch c {
	case cause.CPU, cause.Sleep, cause.Network, cause.Syscall, cause.Lock, cause.Chan:
		return true
	}
	return false
}

// addSleep looks up for how long the goroutine slept in all, of which the
// request waited for a part.
func (p *part) addSleep(a *turn) {
	p.spans = p.stage.Win.SpansCoarse(a.g, a.start, a.end, p.spans[:0])
	for i := range p.spans {
		s := &p.spans[i]
		if s.State != timeline.Waiting || s.How == timeline.HowStatus || s.Start > a.start || s.End < a.end {
			continue
		}
		d := s.End - s.Start
		us := min(d, 60e9) / 1000
		sum := sleepSum{n: a.weight, ns: a.weight * d, squares: a.weight * us * us, partNS: a.weight * (a.end - a.start)}
		if s.Start < a.start {
			sum.early = a.weight
		}
		p.sleeps[a.key] = p.sleeps[a.key].plus(sum)
	}
}

// serversMost bounds the goroutines that are distinguished.
const serversMost = 1024

// settleTurns brings together what all workers saw of a generation's turns. The
// result does not depend on who saw what.
func (s *Sum) settleTurns() {
	byKey := make(map[turnKey][]*turn)
	for _, p := range s.parts {
		for i := range p.turns {
			a := &p.turns[i]
			byKey[a.key] = append(byKey[a.key], a)
		}
	}
	for key, list := range byKey {
		slices.SortFunc(list, func(a, b *turn) int {
			switch {
			case a.g != b.g:
				return cmp.Compare(a.g, b.g)
			case a.start != b.start:
				return cmp.Compare(a.start, b.start)
			}
			return cmp.Compare(a.end, b.end)
		})
		sum := entry.In(s.turns, key)
		var busy []stretch // each goroutine, from its first turn to its last
		for of := range chunked(list, func(a, b *turn) bool { return a.g == b.g }) {
			busy = append(busy, stretch{of[0].start, sum.add(of, s.serving)})
		}
		sum.most = max(sum.most, atOnce(busy))
	}
}

// add adds the turns on one goroutine, in order of their beginning, and returns when the last one ended.
func (s *turnSum) add(list []*turn, requests map[uint64]struct{}) (until int64) {
	_, taken := requests[list[0].g]
	if s.servers == nil {
		s.servers = make(map[uint64]struct{})
	}
	if len(s.servers) < serversMost {
		s.servers[list[0].g] = struct{}{}
	}
	var own []*turn
	for _, a := range list {
		d := a.weight * (a.end - a.start)
		s.waited += d
		if taken {
			s.taken += d
		}
		if a.locked {
			s.locked += d
		}
		s.busy += max(0, a.end-max(a.start, until))
		until = max(until, a.end)
		if a.last {
			own = append(own, a)
		}
	}
	slices.SortFunc(own, func(a, b *turn) int { return cmp.Compare(a.end, b.end) })
	for i := 0; i < len(own); {
		served, asked, k := int64(0), false, i
		for ; k < len(own) && (k == i || own[k].end-own[k-1].end <= scale.Turn); k++ {
			a := own[k]
			served += a.weight
			asked = asked || a.asked // who came later did not see it
			if a.ahead {
				s.ahead += a.weight
			}
		}
		if s.served += served; asked {
			s.asked += served
		}
		s.ends++
		if len(s.marks) < marksMost {
			s.marks = append(s.marks, mark{list[0].g, own[i].end})
		}
		i = k
	}
	return until
}

// Turns sums up what requests waited for on other goroutines, at one site and
// for one cause, in the slices of time that were looked at.
type Turns struct {
	Cause string
	Site  *report.Site // for cpu, of the wait that leads there
	// Waiting is how many requests waited for one goroutine at once, on average
	// over the time in which any did; 1 if each had a goroutine to itself.
	Waiting float64
	// Together is how many of them one and the same instant ended, on average.
	Together float64
	// Taken is the part of the time on goroutines that were serving other
	// requests.
	Taken float64
	// Locked is the part of the time that requests came to through a lock: they queue for that.
	Locked float64
	// Asked is the part of the requests that waited for the network for which the goroutine itself had written since the answer before.
	Asked float64
	// Ahead is the part of the requests that came when the goroutine was already at what they then waited for last: it was not for them.
	Ahead float64
	// Servers counts the goroutines waited for, up to 1024, Most those at once: workers may end, and others be started in their stead.
	Servers, Most int
	// ServiceNS is for how long a goroutine was busy with one of them, or with
	// those that ended at one instant.
	ServiceNS int64
	// Busy is how many of the goroutines were busy for requests, on average over
	// the time.
	Busy float64
	// Served counts the requests; Rate is how many a second.
	Served int
	Rate   float64
	// Sleeps: how many were looked up in full, the part of them under way before
	// the request came, their mean length and its standard deviation, and the
	// mean part that a request waited through.
	Sleeps   int
	Early    float64
	SleepNS  int64
	SpreadNS int64
	PartNS   int64
	// PeriodNS is the fixed time that lies between the instants at which turns
	// on one goroutine end, or of which it is a multiple; 0 if there is none.
	PeriodNS int64
}

// Turns returns the sums of all turns of requests of some kinds, nil for all,
// those with the most waiting first. Merge must have been called.
func (s *Sum) Turns(sp *spell.Speller, kinds func(request.Kind) bool) []Turns {
	keys := slices.SortedFunc(maps.Keys(s.turns), func(a, b turnKey) int {
		return cmp.Or(cmp.Compare(s.turns[b].waited, s.turns[a].waited), cmp.Compare(a.kind, b.kind), cmp.Compare(a.cause, b.cause), sp.CompareFrames(a.site, b.site))
	})
	var out []Turns
	for _, k := range keys {
		sum := s.turns[k]
		if sum.waited == 0 || sum.ends == 0 || kinds != nil && !kinds(k.kind) {
			continue
		}
		r := Turns{
			Cause: k.cause.String(), Site: sp.Site(k.site), Servers: len(sum.servers), Most: sum.most, Served: int(sum.served),
			Waiting: float64(sum.waited) / float64(max(sum.busy, 1)), Together: float64(sum.served) / float64(sum.ends),
			Taken: float64(sum.taken) / float64(sum.waited), Locked: float64(sum.locked) / float64(sum.waited),
			Asked: float64(sum.asked) / float64(sum.served), Ahead: float64(sum.ahead) / float64(sum.served),
			ServiceNS: sum.busy / sum.ends, PeriodNS: period(sum.marks),
		}
		if s.span > 0 {
			r.Busy, r.Rate = float64(sum.busy)/float64(s.span), float64(sum.served)/float64(s.span)*1e9
		}
		if sleeps := s.parts[0].sleeps[k]; sleeps.n > 0 {
			mean := float64(sleeps.ns) / float64(sleeps.n)
			r.Sleeps, r.Early = int(sleeps.n), float64(sleeps.early)/float64(sleeps.n)
			r.SleepNS, r.PartNS = int64(mean), sleeps.partNS/sleeps.n
			r.SpreadNS = int64(1000 * math.Sqrt(max(0, float64(sleeps.squares)/float64(sleeps.n)-mean*mean/1e6)))
		}
		out = append(out, r)
	}
	return out
}

// period returns the time of which nearly all distances between successive
// marks of a goroutine are multiples, 0 if there is none.
func period(marks []mark) int64 {
	slices.SortFunc(marks, func(a, b mark) int { return cmp.Or(cmp.Compare(a.g, b.g), cmp.Compare(a.t, b.t)) })
	var gaps []int64
	for i := 1; i < len(marks); i++ {
		if d := marks[i].t - marks[i-1].t; marks[i].g == marks[i-1].g && d > scale.Turn {
			gaps = append(gaps, d)
		}
	}
	if len(gaps) < 5 {
		return 0
	}
	slices.Sort(gaps)
	// A late wake makes one distance longer and the next one shorter, so the
	// smallest is no guide.
	p := float64(gaps[len(gaps)/5])
	fit := func(p float64) (n int, sum float64) {
		for _, d := range gaps {
			k := math.Round(float64(d) / p)
			if k >= 1 && k <= 20 && math.Abs(float64(d)/p-k) <= 0.1 {
				n++
				sum += float64(d) / k
			}
		}
		return n, sum
	}
	for range 2 {
		n, sum := fit(p)
		if n == 0 {
			return 0
		}
		p = sum / float64(n)
	}
	if n, _ := fit(p); float64(n) < 0.8*float64(len(gaps)) {
		return 0
	}
	return int64(p)
}
