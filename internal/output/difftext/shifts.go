package difftext

import (
	"bufio"
	"cmp"
	"fmt"
	"io"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/judge/watch"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
)

// WriteShifts writes how the latencies of groups changed over the polls of a service.
func WriteShifts(w io.Writer, shifts []watch.Shift, opts Options) error {
	opts.Width = cmp.Or(opts.Width, defaultWidth)
	opts.Width = max(opts.Width, minWidth)
	p := &page{out: bufio.NewWriter(w), opts: opts}
	p.line("")
	if len(shifts) == 0 {
		p.wrapText("", "Over all looks: no group has had requests in four of them yet.")
		return p.out.Flush()
	}
	p.wrapText("", "Over all looks: p99 of each look, or its slowest request; the last looks with requests compared with those before, with a "+
		fmt.Sprintf("%.0f%%", 100*compare.Confidence)+" interval of the change.")
	room := p.opts.Width - 2 - 10 - 2*valueColumn - changeColumn - 24
	p.line("  " + termtext.Pad("", room) + termtext.PadLeft("looks", 10) + termtext.PadLeft("before", valueColumn) + termtext.PadLeft("last", valueColumn) + termtext.PadLeft("change", changeColumn))
	for i := range shifts {
		s := &shifts[i]
		change, delta := noEvidence, s.NewNS-s.OldNS
		if s.Evidence {
			change = words.Change(s.Est)
		}
		line := "  " + termtext.Pad(termtext.Middle(s.Name, room-1), room) + termtext.PadLeft(fmt.Sprintf("%d → %d", s.OldPolls, s.NewPolls), 10) +
			termtext.PadLeft(words.Duration(s.OldNS), valueColumn) + termtext.PadLeft(words.Duration(s.NewNS), valueColumn) +
			p.colourChange(termtext.PadLeft(change, changeColumn), s.Evidence, &delta)
		if s.Relative && s.Low != nil {
			line += "  " + words.Change(*s.Low) + " to " + words.Change(*s.High)
		}
		p.line(line)
	}
	return p.out.Flush()
}
