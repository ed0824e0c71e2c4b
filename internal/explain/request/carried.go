package request

import (
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A carrier holds what is known of a function of the standard library with which goroutines are started: whether it carries requests
// to the service's own code, as net/rpc's does. It does if a goroutine that reads from the network, or accepts connections, starts
// one after another, each for what it has read, and the service's own code runs in them. Where handlers of requests start such
// goroutines, these are part of the requests.
type carrier struct {
	yes bool
	by  map[uint64]bool // who has started some in this generation, by goroutine
}

// mayCarry reports whether goroutines that a function of the standard library was started in are to be looked at.
func (j *jobs) mayCarry(f *Finder, start tracefmt.StackID) bool {
	frames := f.syms.Stack(start)
	fn := f.syms.Frame(frames[0]).Func
	c, ok := j.carriers[fn]
	if !ok {
		if f.namer.fn(fn).is(std) { // gRPC's machinery carries what is found otherwise
			c = &carrier{by: make(map[uint64]bool)}
		}
		j.carriers[fn] = c
	}
	return c != nil
}

// carried takes note of a goroutine that was started with a function of the standard library, by none that serves what a protocol shows, if
// it may be a request's.
func (j *jobs) carried(f *Finder, g *timeline.Gen, b *timeline.Birth) {
	c := j.carriers[f.syms.Frame(f.syms.Stack(b.Start)[0]).Func]
	again := c.by[b.By]
	c.by[b.By] = true
	if f.annotatedAt(b.By, b.Time) || !c.yes && !(again && f.reads(g, b.By, b.Time)) {
		return
	}
	delete(j.lives, b.By) // who reads requests is none
	j.lives[b.G] = &life{open: open{start: b.Time, from: b.Time}, entry: b.Start, creator: b.By, made: b.Stack, carrier: c}
}

// servesNow reports whether a goroutine with this stack handles a request that a protocol shows.
func (f *Finder) servesNow(id uint64, stack tracefmt.StackID) bool {
	return f.stackInfo(stack).role == roleServes || f.conns[id] != nil || f.streams[id] != nil || f.workers[id] != nil || f.messages.readers[id] != nil
}

// reads reports whether the last wait of a goroutine before an instant was for the network.
func (f *Finder) reads(g *timeline.Gen, id uint64, at int64) bool {
	reads := false
	f.span = f.win.Spans(id, g.Base, at, f.span[:0])
	for i := range f.span {
		if s := &f.span[i]; s.State == timeline.Waiting && s.End <= at {
			reads = f.reason(s.Reason) == reasonNetwork
		}
	}
	return reads
}

// entered gives a life that is carried its kind, when it has ended or is asked about: each is called by what of the service's own code ran in
// it, which depends on what was read, and where nothing shows that, by the library's function. It returns 0 for that, and false if
// the function carries nothing, as far as is known.
func (j *jobs) entered(f *Finder, l *life, id uint64, end int64) (own tracefmt.FrameID, ok bool) {
	f.span = f.win.Spans(id, l.start, end, f.span[:0])
	for i := range f.span {
		if s := &f.span[i]; s.Stack != 0 && s.How != timeline.HowCreated {
			if own = f.stackInfo(s.Stack).own; own != 0 {
				l.carrier.yes = true
				break
			}
		}
	}
	if !l.carrier.yes {
		return 0, false
	}
	fn := f.syms.Frame(f.syms.Stack(l.entry)[0]).Func
	k := jobKey{fn: fn}
	if j.kinds[k] == nil {
		j.kinds[k] = &jobKind{origin: f.origin(Goroutine, fn, fn)}
	}
	l.kind = j.kinds[k]
	name := fn
	if own != 0 {
		name = f.syms.Frame(own).Func
	}
	o := f.origin(Goroutine, name, fn)
	o.own = true
	o.n++
	o.total++
	o.ns += end - l.start
	o.begun(f, l.creator, l.made)
	return own, true
}
