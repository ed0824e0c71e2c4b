package timeline

// A Carry says what goroutines were doing when a generation began in their midst: since when, and where. Of a million
// goroutines that wait only since when differs, so the rest of their spans is held once.
type Carry struct {
	gen       *Gen            // that begins; its dense numbers are the columns'
	start     []int64         // by dense goroutine: since when
	formIndex []uint32        // by dense goroutine: 1 + the place of its span in forms, 0 for none
	forms     []Span          // without a start, each once
	formOf    map[Span]uint32 // 1 + place in forms, while they are found
}

// reset makes an empty carry to a generation, in the same memory, to be filled after another one, which may be nil.
func (c *Carry) reset(g *Gen, after *Carry) {
	if after != nil {
		c.formOf, after.formOf = after.formOf, nil
	}
	n := len(g.ids.ids)
	c.gen = g
	c.start = resize(c.start, n)
	c.formIndex = resize(c.formIndex, n)
	clear(c.formIndex)
	c.forms = c.forms[:0]
	if c.formOf == nil {
		c.formOf = make(map[Span]uint32)
	}
	clear(c.formOf)
}

// set tells what goroutine d was doing.
func (c *Carry) set(d uint32, s *Span) {
	form := *s
	form.Start = 0
	c.start[d] = s.Start
	// Goroutines that wait in one place were often introduced one after the other.
	if n := len(c.forms); n > 0 && c.forms[n-1] == form {
		c.formIndex[d] = uint32(n)
		return
	}
	k := c.formOf[form]
	if k == 0 {
		c.forms = append(c.forms, form)
		k = uint32(len(c.forms))
		c.formOf[form] = k
	}
	c.formIndex[d] = k
}

func (c *Carry) denseSpan(d uint32) (Span, bool) {
	if c == nil || int(d) >= len(c.formIndex) || c.formIndex[d] == 0 {
		return Span{}, false
	}
	s := c.forms[c.formIndex[d]-1]
	s.Start = c.start[d]
	return s, true
}

// SpanOf returns what a goroutine was doing, false if that is not known. A nil Carry knows nothing.
func (c *Carry) SpanOf(id uint64) (Span, bool) {
	if c == nil {
		return Span{}, false
	}
	return c.denseSpan(c.gen.ids.lookup(id))
}

// Len returns of how many goroutines something may be known.
func (c *Carry) Len() int {
	if c == nil {
		return 0
	}
	return len(c.formIndex)
}

// EachSpan calls f for every goroutine of which something is known.
func (c *Carry) EachSpan(f func(id uint64, s Span)) {
	for d := range c.Len() {
		if s, ok := c.denseSpan(uint32(d)); ok {
			f(c.gen.ids.ids[d], s)
		}
	}
}
