package request

import (
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/stdlib"
	"github.com/whylate/whylate/internal/timeline"
	"github.com/whylate/whylate/internal/tracefmt"
)

// manyJobs is how often a function must have been started as a goroutine and
// have ended before its goroutines count as jobs.
const manyJobs = 8

// jobs follows goroutines whose whole life is one unit of work: an entry
// function started again and again. One started by another job is a part of
// that one.
type jobs struct {
	lives map[uint64]*life
	entry map[tracefmt.StringID]*entry
	main  open // main's life, for a trace that has no requests at all
	mainG bool
}

type life struct {
	open
	start tracefmt.StackID
	entry *entry
	part  bool // of another job
}

type entry struct {
	ended int
	held  []Request // until there are many
}

func (j *jobs) add(f *Finder, g *timeline.Gen) {
	if j.lives == nil {
		j.lives = make(map[uint64]*life)
		j.entry = make(map[tracefmt.StringID]*entry)
	}
	f.mainLife(g)
	for _, b := range g.Births(f.isJob) {
		fn := f.syms.Frame(f.syms.Stack(b.Start)[0]).Func
		e := j.entry[fn]
		if e == nil {
			e = &entry{}
			j.entry[fn] = e
		}
		l := &life{open: open{start: b.Time, from: b.Time}, start: b.Start, entry: e}
		l.part = j.lives[b.By] != nil || f.serves(b.By, b.Time)
		j.lives[b.G] = l
	}
	for _, id := range slices.Sorted(maps.Keys(j.lives)) {
		l := j.lives[id]
		t, dead := g.Death(id)
		if !dead && g.Knows(id) {
			continue
		}
		delete(j.lives, id)
		if !dead || l.part {
			continue
		}
		r := Request{Kind: Goroutine, Start: l.open.start, End: t, G: id, Entry: l.start}
		if l.key != 0 {
			r.Start, r.Part, r.Key = l.from, Last, l.key
		}
		if l.entry.ended++; l.entry.ended < manyJobs {
			l.entry.held = append(l.entry.held, r)
			continue
		}
		f.out = append(append(f.out, l.entry.held...), r)
		l.entry.held = nil
	}
}

func (j *jobs) eachOpen(visit func(*open, Request)) {
	for id, l := range j.lives {
		if !l.part && l.entry.ended >= manyJobs {
			visit(&l.open, Request{Kind: Goroutine, G: id, Entry: l.start})
		}
	}
}

// isJob reports whether a start function is the user's own and may be work.
func (f *Finder) isJob(start tracefmt.StackID) bool {
	frames := f.syms.Stack(start)
	if len(frames) == 0 || f.servesStream(start) {
		return false
	}
	fn := f.syms.String(f.syms.Frame(frames[0]).Func)
	return !stdlib.Is(fn) && !strings.HasPrefix(fn, "google.golang.org/grpc") && !strings.HasPrefix(fn, "golang.org/x/net/")
}

// mainKey is the key of the parts of main's life.
const mainKey = ^uint64(0)

// mainLife hands out what the main goroutine did, a part a generation: it is
// what can be explained of a program in which no requests are found.
func (f *Finder) mainLife(g *timeline.Gen) {
	j := &f.jobs
	if !g.Knows(1) {
		return
	}
	if !j.mainG {
		j.mainG, j.main = true, open{start: g.Base, from: g.Base}
	}
	to := g.End
	f.span = f.win.Spans(1, to-1, to, f.span[:0])
	if len(f.span) > 0 && f.span[0].Start > j.main.from && f.span[0].Start < to {
		to = f.span[0].Start
	}
	if to > j.main.from {
		f.out = append(f.out, Request{Kind: Main, Start: j.main.from, End: to, G: 1, Part: Middle, Key: mainKey})
		j.main.from = to
	}
}
