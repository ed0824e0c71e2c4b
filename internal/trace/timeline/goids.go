package timeline

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// goidPage holds the dense ids of 256 neighbouring goroutine ids. Goroutine
// ids are nearly dense in a generation, so pages beat a map by far.
type goidPage [256]atomic.Uint32

type goids struct {
	mu    sync.Mutex
	pages map[uint64]*goidPage
	ids   []uint64 // by dense id; ids[0] is no goroutine
	spare []*goidPage
	// Ids that are not dense, which the runtime does not give, must not cost a
	// page each: beyond most pages, which follows from the bytes read, they go
	// to a map.
	maxPages int
	sparse   map[uint64]uint32
	// Once all ids are given: the pages from number first on, without a map.
	firstPage uint64
	pageRow   []*goidPage
}

// seal prepares for lookups: where the pages are near each other, as they are
// but for the oldest goroutines, they are found by number.
func (t *goids) seal() {
	keys := slices.Sorted(maps.Keys(t.pages))
	// The longest tail of pages in which at least one number in four is used.
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
	t.ids = append(t.ids[:0], 0)
	t.firstPage, t.pageRow = 0, t.pageRow[:0]
}

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

func (t *goids) assign(p *goidPage, id uint64) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v := p[id&255].Load(); v != 0 {
		return v
	}
	v := uint32(len(t.ids))
	t.ids = append(t.ids, id)
	p[id&255].Store(v)
	return v
}

// lookup returns the dense id of a goroutine, 0 if the generation has none.
// It must not run beside assign.
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

func (t *goids) assignSparse(id uint64) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.sparse[id]
	if v == 0 {
		if t.sparse == nil {
			t.sparse = make(map[uint64]uint32)
		}
		v = uint32(len(t.ids))
		t.ids = append(t.ids, id)
		t.sparse[id] = v
	}
	return v
}

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
	if v := e.page[id&255].Load(); v != 0 {
		return v
	}
	return w.ids.assign(e.page, id)
}
