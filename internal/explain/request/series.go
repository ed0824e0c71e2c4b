package request

import (
	"slices"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Series holds the jobs or iterations of a generation that differ only in their goroutines and times. A program may have a million
// of them in a second, and most are only counted. So each is a Unit and no Request.
type Series struct {
	// Chunks has the units.
	Chunks [][]Unit
	key    seriesKey
}

// A Unit is one job or iteration.
type Unit struct {
	Start, End int64
	G          uint64
}

// A seriesKey has the fields of a Request that all units of a Series share. isWoken says that WokenAt is Start, and not 0.
type seriesKey struct {
	kind                    Kind
	isWoken                 bool
	readsClient             bool
	answersClient           bool
	entryStack              tracefmt.StackID
	rootFrame, starterFrame tracefmt.FrameID
}

// SetRequest makes r the request of a unit.
func (s *Series) SetRequest(r *Request, unit *Unit) {
	*r = Request{}
	r.Start, r.wholeStart, r.End, r.G = unit.Start, unit.Start, unit.End, unit.G
	r.Kind, r.EntryStack, r.RootFrame, r.StarterFrame = s.key.kind, s.key.entryStack, s.key.rootFrame, s.key.starterFrame
	r.ReadsClient, r.AnswersClient = s.key.readsClient, s.key.answersClient
	if s.key.isWoken {
		r.WokenAt = unit.Start
	}
}

// AppendUnits appends the requests of all units of some series to a list and returns it.
func AppendUnits(list []Request, series ...*Series) []Request {
	for _, s := range series {
		list = slices.Grow(list, s.Count())
		for _, units := range s.Chunks {
			for i := range units {
				list = append(list, Request{})
				s.SetRequest(&list[len(list)-1], &units[i])
			}
		}
	}
	return list
}

// Count returns the number of units.
func (s *Series) Count() (n int) {
	for _, units := range s.Chunks {
		n += len(units)
	}
	return n
}

// unitsPerChunk is the number of units in one allocation: programs may have thousands of series.
const unitsPerChunk = 128

// seriesList holds the series of a generation, in the order in which their first units were added.
type seriesList struct {
	list  []*Series
	byKey map[seriesKey]*Series
	last  *Series // to which a unit was added last; nil for none
	spare [][]Unit
}

// add adds a unit of goroutine g to the series with a key.
func (l *seriesList) add(key seriesKey, start, end int64, g uint64) {
	if l.last == nil || l.last.key != key {
		if l.last = l.byKey[key]; l.last == nil {
			if l.byKey == nil {
				l.byKey = make(map[seriesKey]*Series)
			}
			l.last = &Series{key: key}
			l.byKey[key], l.list = l.last, append(l.list, l.last)
		}
	}
	s := l.last
	n := len(s.Chunks)
	if n == 0 || len(s.Chunks[n-1]) == unitsPerChunk {
		s.Chunks = append(s.Chunks, l.newChunk())
		n++
	}
	s.Chunks[n-1] = append(s.Chunks[n-1], Unit{start, end, g})
}

func (l *seriesList) newChunk() []Unit {
	n := len(l.spare)
	if n == 0 {
		return make([]Unit, 0, unitsPerChunk)
	}
	chunk := l.spare[n-1]
	l.spare = l.spare[:n-1]
	return chunk
}

// count returns the number of units of all series.
func (l *seriesList) count() (n int) {
	for _, s := range l.list {
		n += s.Count()
	}
	return n
}

// remove removes the series for which isRemoved returns true.
func (l *seriesList) remove(isRemoved func(*Series) bool) {
	l.list = slices.DeleteFunc(l.list, func(s *Series) bool {
		if !isRemoved(s) {
			return false
		}
		for _, chunk := range s.Chunks {
			l.spare = append(l.spare, chunk[:0])
		}
		delete(l.byKey, s.key)
		return true
	})
	l.last = nil
}

// removeLoops removes the iterations of some goroutines.
func (l *seriesList) removeLoops(goroutines map[uint64]bool) {
	for _, s := range l.list {
		for i, units := range s.Chunks {
			if s.key.kind == Loop {
				s.Chunks[i] = slices.DeleteFunc(units, func(u Unit) bool { return goroutines[u.G] })
			}
		}
	}
}

// reset empties the list and keeps its memory.
func (l *seriesList) reset() { l.remove(func(*Series) bool { return true }) }
