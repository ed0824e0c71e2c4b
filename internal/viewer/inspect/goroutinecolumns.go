package inspect

import (
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A goroutineColumns holds one row for each goroutine: about 32 bytes, including the table that finds rows.
type goroutineColumns struct {
	table     rowTable
	ids       numbers
	starts    column  // stack of the start function, a StackID; with anyStackBit any of the goroutine's stacks
	births    numbers // 0 if before the trace
	lifetimes numbers // time from the birth to the last instant at which the goroutine was known to be alive
	pieces    column
	runTimes  numbers // running time in ns
	dropped   int     // number of goroutines beyond the limit
}

// anyStackBit, in starts, reports that it is no start function but one of the goroutine's stacks.
const anyStackBit = 1 << 31

func (c *goroutineColumns) init() {
	c.table.init()
	c.ids.relative, c.births.relative = true, true
}

func (c *goroutineColumns) rows() int { return c.ids.length }

func (c *goroutineColumns) id(row int32) uint64 { return uint64(c.ids.get(row)) }

func (c *goroutineColumns) born(row int32) int64 { return c.births.get(row) }

// lastSeen returns the last instant at which a goroutine was known to be alive.
func (c *goroutineColumns) lastSeen(row int32) int64 { return c.births.get(row) + c.lifetimes.get(row) }

// addGeneration adds the goroutines of a generation, or extends their rows; new ones beyond limit rows are only counted as dropped.
func (c *goroutineColumns) addGeneration(g *timeline.Gen, limit int) {
	g.Lives(func(l timeline.Life) {
		row, ok := c.table.get(l.ID)
		if !ok {
			if c.rows() >= limit {
				c.dropped++
				return
			}
			row = int32(c.rows())
			c.table.put(l.ID, row)
			c.ids.add(int64(l.ID))
			c.starts.add(0)
			c.births.add(l.Born)
			c.lifetimes.add(0)
			c.pieces.add(0)
			c.runTimes.add(0)
		}
		start := c.starts.cell(row)
		if l.Start != 0 {
			*start = uint32(l.Start)
		} else if *start == 0 && l.Stack != 0 {
			*start = uint32(l.Stack) | anyStackBit
		}
		last := g.End
		if l.Died != 0 {
			last = l.Died
		}
		c.lifetimes.set(row, last-c.births.get(row))
		*c.pieces.cell(row) += uint32(l.Pieces)
	})
}

// addRun adds a run to the running time of its goroutine.
func (c *goroutineColumns) addRun(r *timeline.Run) {
	if row, ok := c.table.get(r.G); ok {
		c.runTimes.set(row, c.runTimes.get(row)+r.To-r.From)
	}
}

// name returns the name of the function with which a goroutine started; if that is unknown, the outermost function of its stack; 0 without a stack.
func (c *goroutineColumns) name(row int32, syms *tracefmt.Symbols) tracefmt.StringID {
	start := *c.starts.cell(row)
	frames := syms.Stack(tracefmt.StackID(start &^ anyStackBit))
	switch {
	case len(frames) == 0:
		return 0
	case start&anyStackBit != 0:
		return syms.Frame(frames[len(frames)-1]).Func
	}
	return syms.Frame(frames[0]).Func
}

// bytes returns their approximate memory.
func (c *goroutineColumns) bytes() int64 {
	return c.table.bytes() + c.ids.bytes() + c.starts.bytes() + c.births.bytes() + c.lifetimes.bytes() + c.pieces.bytes() + c.runTimes.bytes()
}
