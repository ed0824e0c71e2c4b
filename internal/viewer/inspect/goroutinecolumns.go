package inspect

import (
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// goroutineColumns holds goroutines, a row each: about 32 bytes with the table that finds them.
type goroutineColumns struct {
	rowsOf rowTable
	ids    numbers
	starts column  // what it was created to run, a StackID; with onlyOn any stack of it
	births numbers // 0: before the trace
	lived  numbers // from birth to the last instant at which it was known to live
	pieces column
	ran    numbers // ns in which it ran
	left   int     // not kept for want of room
}

// onlyOn, in starts, says that it is only a stack of the goroutine.
const onlyOn = 1 << 31

func (c *goroutineColumns) init() {
	c.rowsOf.init()
	c.ids.relative, c.births.relative = true, true
}

func (c *goroutineColumns) rows() int { return c.ids.n }

func (c *goroutineColumns) id(row int32) uint64 { return uint64(c.ids.get(row)) }

func (c *goroutineColumns) born(row int32) int64 { return c.births.get(row) }

// last returns the last instant at which a goroutine was known to live.
func (c *goroutineColumns) last(row int32) int64 { return c.births.get(row) + c.lived.get(row) }

// add takes what a generation shows.
func (c *goroutineColumns) add(g *timeline.Gen, most int) {
	g.Lives(func(l timeline.Life) {
		row, ok := c.rowsOf.get(l.ID)
		if !ok {
			if c.rows() >= most {
				c.left++
				return
			}
			row = int32(c.rows())
			c.rowsOf.put(l.ID, row)
			c.ids.add(int64(l.ID))
			c.starts.add(0)
			c.births.add(l.Born)
			c.lived.add(0)
			c.pieces.add(0)
			c.ran.add(0)
		}
		start := c.starts.at(row)
		if l.Start != 0 {
			*start = uint32(l.Start)
		} else if *start == 0 && l.Stack != 0 {
			*start = uint32(l.Stack) | onlyOn
		}
		last := g.End
		if l.Died != 0 {
			last = l.Died
		}
		c.lived.set(row, last-c.births.get(row))
		*c.pieces.at(row) += uint32(l.Pieces)
	})
}

// addRun adds a run to the time that its goroutine ran.
func (c *goroutineColumns) addRun(r *timeline.Run) {
	if row, ok := c.rowsOf.get(r.G); ok {
		c.ran.set(row, c.ran.get(row)+r.To-r.From)
	}
}

// name returns the function that a goroutine started with, or the outermost
// that it was seen in.
func (c *goroutineColumns) name(row int32, syms *tracefmt.Symbols) tracefmt.StringID {
	start := *c.starts.at(row)
	frames := syms.Stack(tracefmt.StackID(start &^ onlyOn))
	switch {
	case len(frames) == 0:
		return 0
	case start&onlyOn != 0:
		return syms.Frame(frames[len(frames)-1]).Func
	}
	return syms.Frame(frames[0]).Func
}

// bytes is about what they take.
func (c *goroutineColumns) bytes() int64 {
	return c.rowsOf.bytes() + c.ids.bytes() + c.starts.bytes() + c.births.bytes() + c.lived.bytes() + c.pieces.bytes() + c.ran.bytes()
}
