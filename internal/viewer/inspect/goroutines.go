package inspect

import (
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// goroutineColumns holds goroutines, a row each, about 50 bytes with the map.
type goroutineColumns struct {
	at     map[uint64]int32
	id     []uint64
	start  []tracefmt.StackID // what it was created to run; else any stack of it
	own    []bool             // start is only a stack of it
	born   []int64            // 0: before the trace
	last   []int64            // the last instant at which it was known to live
	pieces []uint32
	ran    []int64 // ns in which it ran
	left   int     // not kept for want of room
}

// add takes what a generation shows.
func (c *goroutineColumns) add(g *timeline.Gen, most int) {
	g.Lives(func(l timeline.Life) {
		row, ok := c.at[l.ID]
		if !ok {
			if len(c.id) >= most {
				c.left++
				return
			}
			row = int32(len(c.id))
			c.at[l.ID] = row
			c.id = append(c.id, l.ID)
			c.start = append(c.start, 0)
			c.own = append(c.own, false)
			c.born = append(c.born, l.Born)
			c.last = append(c.last, 0)
			c.pieces = append(c.pieces, 0)
			c.ran = append(c.ran, 0)
		}
		if l.Start != 0 {
			c.start[row], c.own[row] = l.Start, false
		} else if c.start[row] == 0 && l.Stack != 0 {
			c.start[row], c.own[row] = l.Stack, true
		}
		c.last[row] = g.End
		if l.Died != 0 {
			c.last[row] = l.Died
		}
		c.pieces[row] += uint32(l.Pieces)
	})
}

// addRun adds a run to the times that goroutines ran, by row.
func (c *goroutineColumns) addRun(ran []int64, r *timeline.Run) {
	if row, ok := c.at[r.G]; ok {
		ran[row] += r.To - r.From
	}
}

// name returns the function that a goroutine started with, or the outermost
// that it was seen in.
func (c *goroutineColumns) name(row int32, syms *tracefmt.Symbols) tracefmt.StringID {
	frames := syms.Stack(c.start[row])
	switch {
	case len(frames) == 0:
		return 0
	case c.own[row]:
		return syms.Frame(frames[len(frames)-1]).Func
	}
	return syms.Frame(frames[0]).Func
}
