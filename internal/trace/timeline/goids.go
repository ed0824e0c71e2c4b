package timeline

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/explain/entry"
)

// A goidPage holds the dense numbers of 256 consecutive goroutine ids. The ids of a generation are nearly dense,
// so pages are much faster than a map.
type goidPage [256]atomic.Uint32

// A goids assigns dense numbers, from 1 on, to the goroutine ids of a generation, so that columns can be indexed by them.
type goids struct {
	mu    sync.Mutex    // guards pages, spare and sparse
	last  atomic.Uint32 // the last number that was assigned
	pages map[uint64]*goidPage
	spare []*goidPage
	// Sparse ids, which the runtime does not assign, must not cost a page each: beyond maxPages, which is
	// derived from the size of the generation, they are in a map.
	maxPages int
	sparse   map[uint64]uint32
	// After seal: the ids by dense number, where ids[0] is unused, and the pages from number firstPage on, for lookups without a map.
	ids       []uint64
	firstPage uint64
	pageRow   []*goidPage
}

// seal prepares lookups after the last assignment: it lists the ids by number, and puts the pages with close ids, which are all except
// those of the oldest goroutines, into a row that is indexed by page number.
func (t *goids) seal() {
	keys := slices.Sorted(maps.Keys(t.pages))
	t.ids = entry.Resize(t.ids, int(t.last.Load())+1)
	t.ids[0] = 0
	for _, key := range keys {
		page := t.pages[key]
		for i := range page {
			if number := page[i].Load(); number != 0 {
				t.ids[number] = key<<8 + uint64(i)
			}
		}
	}
	for id, number := range t.sparse {
		t.ids[number] = id
	}
	// Use the longest tail of the pages in which at least one number in four is used.
	i := 0
	for i < len(keys) && keys[len(keys)-1]-keys[i] > 4*uint64(len(keys)-i)+64 {
		i++
	}
	t.pageRow = t.pageRow[:0]
	if i == len(keys) {
		return
	}
	t.firstPage = keys[i]
	for _, k := range keys[i:] {
		for uint64(len(t.pageRow)) < k-t.firstPage {
			t.pageRow = append(t.pageRow, nil)
		}
		t.pageRow = append(t.pageRow, t.pages[k])
	}
}

// reset removes all ids. bytes, the size of the next generation, limits the number of pages.
func (t *goids) reset(bytes int64) {
	t.maxPages = 1024 + int(bytes/512)
	t.sparse = nil
	for _, p := range t.pages {
		clear(p[:])
		t.spare = append(t.spare, p)
	}
	clear(t.pages)
	if t.pages == nil {
		t.pages = make(map[uint64]*goidPage)
	}
	t.last.Store(0)
	t.ids, t.firstPage, t.pageRow = t.ids[:0], 0, t.pageRow[:0]
}

// page returns the page with number key, creating it on demand; nil if there are too many pages.
func (t *goids) page(key uint64) *goidPage {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pages[key]
	if p == nil && len(t.pages) < t.maxPages {
		if n := len(t.spare); n > 0 {
			p, t.spare = t.spare[n-1], t.spare[:n-1]
		} else {
			p = new(goidPage)
		}
		t.pages[key] = p
	}
	return p
}

// pendingNumber is in a page while a worker assigns the number.
const pendingNumber = ^uint32(0)

// assign returns the dense number of an id, which is stored in its page, assigning one to a new id.
func (t *goids) assign(stored *atomic.Uint32) uint32 {
	for !stored.CompareAndSwap(0, pendingNumber) {
		if number := stored.Load(); number != pendingNumber {
			return number
		}
		runtime.Gosched()
	}
	number := t.last.Add(1)
	stored.Store(number)
	return number
}

// lookup returns the dense number of a goroutine id; 0 if the generation does not contain it. It must not run concurrently with
// assign.
func (t *goids) lookup(id uint64) uint32 {
	if k := id>>8 - t.firstPage; k < uint64(len(t.pageRow)) {
		if p := t.pageRow[k]; p != nil {
			return p[id&255].Load()
		}
	} else if p := t.pages[id>>8]; p != nil {
		return p[id&255].Load()
	}
	if t.sparse == nil {
		return 0
	}
	return t.sparse[id]
}

// EachInOrder calls f for each goroutine that occurs in the generation, with its Number, in order of their ids.
func (g *Gen) EachInOrder(f func(id uint64, number uint32)) {
	sparse := slices.Sorted(maps.Keys(g.ids.sparse))
	for _, key := range slices.Sorted(maps.Keys(g.ids.pages)) {
		for len(sparse) > 0 && sparse[0]>>8 < key {
			f(sparse[0], g.ids.sparse[sparse[0]])
			sparse = sparse[1:]
		}
		page := g.ids.pages[key]
		for i := range page {
			if number := page[i].Load(); number != 0 {
				f(key<<8+uint64(i), number)
			}
		}
	}
	for _, id := range sparse {
		f(id, g.ids.sparse[id])
	}
}

// assignSparse returns the dense number of an id that has no page, assigning one to a new id.
func (t *goids) assignSparse(id uint64) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.sparse[id]
	if v == 0 {
		if t.sparse == nil {
			t.sparse = make(map[uint64]uint32)
		}
		v = t.last.Add(1)
		t.sparse[id] = v
	}
	return v
}

// denseID returns the dense number of a goroutine id, assigning one to a new id. The worker caches the pages that it uses.
func (w *worker) denseID(id uint64) uint32 {
	if id == 0 {
		return 0
	}
	e := &w.pageCache[(id>>8)&511]
	if e.key != id>>8+1 {
		p := w.ids.page(id >> 8)
		if p == nil {
			return w.ids.assignSparse(id)
		}
		e.key, e.page = id>>8+1, p
	}
	if v := e.page[id&255].Load(); v != 0 && v != pendingNumber {
		return v
	}
	return w.ids.assign(&e.page[id&255])
}
