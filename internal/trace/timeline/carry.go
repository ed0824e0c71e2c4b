package timeline

import "github.com/whylate/whylate/internal/explain/entry"

// A Carry holds the states in which goroutines were when a generation began: since when, and with which stack. Of a million
// waiting goroutines mostly only the start of the wait differs, so the other fields of their spans are stored once.
type Carry struct {
	gen       *Gen            // the generation that begins; its dense numbers index the columns
	start     []int64         // by goroutine Number: start of its span
	formIndex []uint32        // by goroutine Number: 1 + index in forms of its span; 0 for none
	forms     []Span          // distinct spans, without their start
	formOf    map[Span]uint32 // 1 + index in forms, used while spans are added
}

// reset empties the Carry for generation g and keeps its memory. It takes the memory of formOf from after, the previous Carry,
// which may be nil.
func (c *Carry) reset(g *Gen, after *Carry) {
	if after != nil {
		c.formOf, after.formOf = after.formOf, nil
	}
	n := len(g.ids.ids)
	c.gen = g
	c.start = entry.Resize(c.start, n)
	c.formIndex = entry.Resize(c.formIndex, n)
	clear(c.formIndex)
	c.forms = c.forms[:0]
	if c.formOf == nil {
		c.formOf = make(map[Span]uint32)
	}
	clear(c.formOf)
}

// set stores the span in which goroutine number d was when the generation began. Equal spans with different starts share one
// form.
func (c *Carry) set(d uint32, s *Span) {
	form := *s
	form.Start = 0
	c.start[d] = s.Start
	// Goroutines that wait at one place often have consecutive numbers.
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

// spanOfNumber returns the span in which goroutine number d was when the generation began; false if it is not known.
func (c *Carry) spanOfNumber(d uint32) (Span, bool) {
	if c == nil || int(d) >= len(c.formIndex) || c.formIndex[d] == 0 {
		return Span{}, false
	}
	s := c.forms[c.formIndex[d]-1]
	s.Start = c.start[d]
	return s, true
}

// SpanOf returns the span in which a goroutine was when the generation began; false if it is not known. A nil Carry knows none.
func (c *Carry) SpanOf(id uint64) (Span, bool) {
	if c == nil {
		return Span{}, false
	}
	return c.spanOfNumber(c.gen.ids.lookup(id))
}

// Len returns an upper bound for the number of goroutines with a known span.
func (c *Carry) Len() int {
	if c == nil {
		return 0
	}
	return len(c.formIndex)
}

// EachSpan calls f for each goroutine whose span at the generation's beginning is known.
func (c *Carry) EachSpan(f func(id uint64, s Span)) {
	for d := range c.Len() {
		if s, ok := c.spanOfNumber(uint32(d)); ok {
			f(c.gen.ids.ids[d], s)
		}
	}
}
