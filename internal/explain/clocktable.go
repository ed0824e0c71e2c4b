package explain

import (
	"github.com/whylate/whylate/internal/explain/exchange"
	"github.com/whylate/whylate/report"
)

// A clockTable converts the times of services to the clock of one of them.
type clockTable struct {
	entry       *Service
	conversions map[*Service]clockConversion
}

// A clockConversion returns the entry service's time for one of another service, with its greatest error.
type clockConversion func(t int64) (ns, slack int64)

// newClockTable returns the conversions to the clock of service entry: for each service that shares a clock with entry, or that a
// chain of joined calls connects with it. Other services have none.
func newClockTable(entry *Service, services []*Service) clockTable {
	out := clockTable{entry, map[*Service]clockConversion{entry: func(t int64) (ns, slack int64) { return t, 0 }}}
	for _, s := range services {
		if link := entry.preview.clock.To(s.preview.clock); s != entry && s.isClockKnown() && entry.isClockKnown() && link.IsExact() {
			out.conversions[s] = func(t int64) (ns, slack int64) { return link.ToClient(t), 0 }
		}
	}
	for isChanged := true; isChanged; {
		isChanged = false
		for _, caller := range services {
			for _, callee := range services {
				if caller.remotes == nil || callee.server == nil {
					continue
				}
				link, ok := caller.remotes.links[callee.server]
				switch toCaller, toCallee := out.conversions[caller], out.conversions[callee]; {
				case !ok:
				case toCaller != nil && toCallee == nil:
					out.conversions[callee], isChanged = toCaller.compose(link.ToClient, &link), true
				case toCallee != nil && toCaller == nil:
					out.conversions[caller], isChanged = toCallee.compose(link.ToServer, &link), true
				}
			}
		}
	}
	return out
}

// compose returns a conversion that first applies convert, over a link between two services, and then c; the errors add up.
func (c clockConversion) compose(convert func(int64) int64, link *exchange.Link) clockConversion {
	return func(t int64) (ns, slack int64) {
		_, linkSlack := link.OffsetAt(t)
		ns, slack = c(convert(t))
		return ns, slack + linkSlack
	}
}

// isClockKnown reports whether the trace has a snapshot of other clocks and the service was explained.
func (s *Service) isClockKnown() bool { return s.preview.clock.IsKnown && s.server != nil }

// clockOf returns when the trace of a service started compared with that of the entry service, with bounds, and the drift of its
// clock. Without a conversion it compares the wall clocks. It is nil if one of the clocks is not known.
func (t *clockTable) clockOf(s *Service) *report.ServiceClock {
	if !s.isClockKnown() || !t.entry.isClockKnown() {
		return nil
	}
	convert := t.conversions[s]
	if convert == nil { // the wall clocks
		link := t.entry.preview.clock.To(s.preview.clock)
		convert = func(t int64) (ns, slack int64) {
			_, slack = link.OffsetAt(t)
			return link.ToClient(t), slack
		}
	}
	from, slack := convert(s.server.From)
	to, slackAtEnd := convert(s.server.To)
	slack, start := max(slack, slackAtEnd), from-t.entry.server.From
	out := &report.ServiceClock{OffsetNS: start, LowNS: start - slack, HighNS: start + slack}
	if d := s.server.To - s.server.From; d > 0 {
		out.DriftPPM = 1e6 * float64(d-(to-from)) / float64(d)
	}
	return out
}
