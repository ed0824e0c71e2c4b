package finding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

func peerRule() Rule {
	return Rule{
		Code: report.RuleSlowPeer, Name: "slow-peer",
		Summary: "requests wait for the answer of a peer over the network",
		Doc: Doc{
			Means: "Requests wait for the answer of a peer over the network: a database, another service, a name server. This recording cannot distinguish the " +
				"time of the peer, of the network between, and of the kernels on both sides.",
			Measured: "The goroutine on which the request depends waits in the network poller for a connection that is not its client's. Where nobody polled at the " +
				"end of that wait, that part is sched-poll instead, so the share is the time in which the data really had not arrived. The site is the " +
				"nearest line outside of the standard library; via leads there. Confidence is 0.9, and lower by the part of sched-poll beside it. Where " +
				"nearly each wait contains one request of another group, and the same waits moved in time do not, the peer may be this process, and the " +
				"finding names that group. Where that is certain, by the order in which both begin and end and by the process's sockets, paths continue in " +
				"that group's requests: their waits are reported there, and only the way there and back is reported here. Answers that a request waits for " +
				"one after the other, at least three on average, asked for with the same stack, are reported as sequential calls: each after a write, or each " +
				"in a wait of its own where other goroutines write and read. Where most of the time passed in waits after which the goroutine read nothing " +
				"(what has arrived is read at once), a deadline ended them, or the connection was closed: the peer does not answer, and all of the wait counts. " +
				"Where at least a fifth of the wait lies within a library's function whose name begins with dial, connect or handshake, requests open connections; if at least half of them do, that part counts in full. Where another goroutine reads the answers and ran late, the sender may have run " +
				"as late, and that time is not the peer's. An answer needs time: for its severity three times as much must be lost as elsewhere, and where at " +
				"least half of the requests wait for it, only what slow requests wait beyond the mean of all waiting requests counts. Where slow requests wait about as long as all others " +
				"(of at least 20), severity is low: nothing in the trace says that the peer could be faster. Where a peer does not " +
				"read a loop's own writes, severity is low: requests that wait for the loop have a finding of their own. Far slower requests that were open " +
				"at the same time count once: a peer that stopped for a moment, perhaps because it shares the CPUs, is not slow.",
			Before: "for _, id := range ids {\n\tv, err := c.Get(ctx, id)",
			After:  "vs, err := c.GetAll(ctx, ids) // or errgroup: all at once",
			Wrong: "Where the wait is for something that the peer sends when it chooses to (a subscription, a long poll). Retransmissions look the same: record " +
				"with --pid on the service's host, and WL2008 reports them; the time until segments were sent again is then not reported here.",
		},
		Run: func(in *Input) []Verdict {
			var out []Verdict
			claimsBy(in, report.RuleSlowPeer, func(cl *claims, c *claim) {
				v, counted := peerVerdict(cl, c)
				if n, known := in.Apart[cl.g.ID]; known && n < cl.g.Band(report.BandOutliers).Count {
					v.Evidence = append(v.Evidence, report.Evidence{Text: "separate moments in which the far slower requests were open", Value: float64(n), Unit: "count"})
				}
				v.Evidence = append(v.Evidence, networkEvidence(in.Report.Host)...)
				if n, busy := busyMachine(in); busy && !counted { // how often requests ask is so on any machine
					v.Confidence *= 1 - n.off
					v.Evidence = append(v.Evidence, report.Evidence{Text: "share of the time they wanted to run in which the service's threads waited for a CPU (WL1009), so that answers may have lain unread", Value: n.off, Unit: "share"})
				}
				out = append(out, v)
			})
			return out
		},
	}
}

// peerVerdict returns what is said of a claim, and whether that was seen whoever has the CPUs: how often requests ask, or that nobody answers. For how long
// answers take was not.
func peerVerdict(cl *claims, c *claim) (Verdict, bool) {
	top := &c.parts[0]
	what, fix := "a peer's answer", "ask the peer less often, for several things in one call, or in parallel; or find out at the peer why it is slow"
	if l := libraryOf(top); l != nil && l.peer != "" {
		fix = "in " + l.name + ": " + l.peer
	}
	switch call := top.Call; {
	case isDNS(call) || top.Site != nil && isDNS(top.Site.Func):
		what, fix = "a name server", "keep connections open so that names are looked up less often, or cache addresses; check why the name server is slow (search domains and ndots ask it several times)"
	case isWrite(call):
		what, fix = "a peer to read what is sent", "find out why the peer reads slowly; send less, limit the write (SetWriteDeadline), or give a slow reader a separate queue that may overflow"
	case strings.HasPrefix(call, "net.(*Dialer)."), strings.Contains(call, "dial"):
		what, fix = "a connection to be opened", "reuse connections ("+keepHTTP+")"
	case strings.HasPrefix(call, "crypto/tls."):
		what, fix = "a TLS handshake", "reuse connections, or resume sessions (ClientSessionCache)"
	}
	gap := weighGap(cl.g)
	var own []report.Evidence
	asks := cl.asks(top)
	atOnce := asks != nil && asks.Legs >= 2*asks.Requests
	row := asks
	if asks == nil || asks.Calls < scale.Several*asks.Requests || asks.NS == 0 || atOnce {
		row = nil
	}
	either := what == "a peer's answer" && cl.mayBeClient(top.Cause, top.via)
	if what != "a peer's answer" || cl.g.Peer != nil || either {
		row = nil // there is better advice
	}
	elsewhere := false
	if p := cl.g.Peer; p.Followed() && what == "a peer's answer" {
		// What was done there is a finding of the requests that did it: this is the rest.
		what = fmt.Sprintf("the way to this process's own %s and back, over the network,", names.PeerNames(p))
		fix = "call it without the network where possible: of each wait of " + words.Brief(p.WaitNS) + " it was served for " + words.Brief(p.ServedNS)
	} else if p != nil && what == "a peer's answer" {
		name := names.PeerNames(p)
		switch {
		case p.Recording != "":
			what = fmt.Sprintf("%s in %s,", name, p.Recording)
		case p.Confidence < 0.8:
			what = "a peer's answer, perhaps this process's own " + name + ","
		default:
			what = "this process's own " + name + ","
		}
		ask := fix
		fix = fmt.Sprintf("look at %s in this report%s, which was served for %s of the %s of each wait; the rest is the way there and back, and waiting for a CPU on either side. Call it without the network where possible", name, wentTo(cl.in.Report, p.Group), words.Brief(p.ServedNS), words.Brief(p.WaitNS))
		if p.Recording != "" {
			fix = fmt.Sprintf("look at %s in %s, which was served for %s of the %s of each wait; the rest is the way there and back, and waiting for a CPU on either side", name, p.Recording, words.Brief(p.ServedNS), words.Brief(p.WaitNS))
		} else if p.Confidence < 0.8 {
			// Only times fit: what is certain is the wait, and its own advice.
			if fix = ask; cl.in.Report.Host == nil {
				fix += fmt.Sprintf(". The process's sockets show whether the peer is this process itself: run whylate record -o x.whylate %s on the service's host", recordedURL(cl.in.Report))
			}
		}
		// What most of the wait went on is a fault of that group, and told there.
		elsewhere = p.Recording == "" && slices.ContainsFunc(cl.in.Report.Groups, func(g report.Group) bool { return g.ID == p.Group }) && p.Confidence >= 0.8 && 2*p.ServedNS >= p.WaitNS
		own = []report.Evidence{
			{Text: fmt.Sprintf("share of %d waits that contain one request of %s", p.Waits, name), Value: float64(p.Held) / float64(max(p.Waits, 1)), Unit: "share"},
			{Text: "share of the same waits moved in time that do", Value: p.ByChance, Unit: "share"},
		}
		for _, part := range []struct {
			text string
			ns   *int64
		}{{"part of a wait before the request began there", p.ThereNS}, {"part of that in which it may have lain unread there", p.UnseenNS}, {"part of a wait after the request had ended there", p.BackNS}, {"part of a wait's end in which the waiting goroutine had no P", &p.LateNS}} {
			if part.ns != nil && *part.ns > 0 {
				own = append(own, report.Evidence{Text: part.text, Value: float64(*part.ns), Unit: "ns"})
			}
		}
	}
	sure := 0.9
	if either {
		what, sure = "what its client says next, or perhaps for a peer's answer,", 0.4
		fix = "nothing, if it is its client's connection: what comes there when the client wants to is no request's latency"
	}
	won := cl.ofPeer(c)
	if late := c.readLate(cl.g.Tail()); late.NS*10 > c.won.SlowNS {
		own = append(own, report.Evidence{Text: "part of a slow request's time in which the reader of the answers ran late; the same is assumed for the sender", Value: float64(late.NS), Unit: "ns"})
		// The way there is as long as the way back, and nobody saw it.
		won.All = won.All.without(c.readLate(cl.g.All()))
		slow := won.Slow().without(late)
		won.SlowShare, won.SlowNS = slow.Share, slow.NS
		beside := cl.g.Band(report.BandOutliers)
		if beside == cl.g.Tail() {
			beside = cl.g.TailByPercentile()
		}
		won.Beside = won.Beside.without(c.readLate(beside))
	}
	if lost := lostOnTheWay(cl.g, cl.in.Report.Host); lost > 0 && slices.ContainsFunc(cl.in.Report.Host.Network.Requests, func(w report.HostWait) bool {
		return w.Group == cl.g.ID && slices.ContainsFunc(c.parts, func(p part) bool { return p.Site.Meets(w.Site) })
	}) {
		own = append(own, report.Evidence{Text: "share of the slowest requests' network waits until a segment was sent again, which is not the peer's (WL2008)", Value: lost, Unit: "share"})
		less := func(l Lost) Lost { return l.without(Lost{Share: l.Share * lost, NS: int64(float64(l.NS) * lost)}) }
		slow := less(won.Slow())
		won.All, won.SlowShare, won.SlowNS, won.Beside = less(won.All), slow.Share, slow.NS, less(won.Beside)
	}
	severe := report.Severity("")
	if cl.g.Kind == report.KindLoop && isWrite(top.Call) && len(top.via) == 0 {
		severe = report.SeverityLow // requests that wait until a writer is done have a finding of their own
	}
	v := Verdict{Won: won, Changes: cl.halfOf(top.Cause), Severe: severe, Fact: elsewhere, Finding: report.Finding{
		Title: fmt.Sprintf("requests wait for %s at %s", what, place(users(top.Cause, top.via))), Cause: report.CauseNetwork,
		Site: users(top.Cause, top.via), Group: cl.g.ID, Share: c.share, Confidence: sure * (1 - min(0.5, gap)),
		Evidence: append([]report.Evidence{
			{Text: "mean wait per slow request, " + onWhose(top.via), Value: float64(c.won.SlowNS), Unit: "ns"},
			cl.met(c, top, "have this wait"),
		}, append(own, callEvidence(c, top)...)...),
		Fix: fix,
	}}
	switch {
	case !strings.HasPrefix(what, "a peer's answer"):
	case cl.g.Peer == nil && asks != nil && 2*asks.UnansweredNS >= asks.NS && asks.Unanswered >= scale.Few:
		sayUnanswered(&v, asks)
		v.Won = c.won // none of it is what an answer takes
		return v, true
	case cl.g.Peer == nil && !either && asks != nil && asks.OpeningNS > 0 && float64(asks.OpeningNS) >= scale.Much*float64(asks.WaitedNS):
		if atOnce {
			sayAtOnce(&v, asks)
		}
		return v, cl.sayOpens(&v, c, asks)
	case row != nil:
		cl.sayInRow(&v, top, row)
		return v, true
	case atOnce && cl.g.Peer == nil:
		sayAtOnce(&v, asks)
	case cl.g.Count >= scale.Enough:
		v.Usual = report.SeverityLow // slow requests wait for as long as all: nothing says that the peer could be faster
	}
	return v, false
}

// sayUnanswered says of waits that mostly ended without an answer what ended them.
func sayUnanswered(v *Verdict, a *queues.Asks) {
	v.Title = fmt.Sprintf("requests wait for a peer that does not answer, until a deadline passes, at %s", place(v.Site))
	v.Fix = "make that deadline shorter, or do not ask again for a while who did not answer (a circuit breaker), and find out why the peer does not answer"
	v.Evidence = append([]report.Evidence{
		{Text: "waits after which nothing was read: a deadline had passed, or the connection was closed", Value: float64(a.Unanswered), Unit: "count"},
		{Text: "mean length of them", Value: float64(a.UnansweredNS) / float64(a.Unanswered), Unit: "ns"},
	}, v.Evidence...)
}

// sayOpens says that a part of the wait is the opening of connections, which others that are kept would save. That is so on any machine, and its time counts
// in full, if most requests do it; it reports so.
func (cl *claims) sayOpens(v *Verdict, c *claim, a *queues.Asks) bool {
	part := float64(a.OpeningNS) / float64(a.WaitedNS)
	v.Title = strings.Replace(v.Title, "requests wait for ", fmt.Sprintf("requests open connections (%s of this wait), then wait for ", words.Percent(part)), 1)
	keep := poolsOfStd[a.OpenedIn].keep
	if keep == "" {
		keep = "have the pool keep more of them, or share one client"
	}
	rest := v.Fix
	v.Fix = keep + ", so that connections stay open for later requests"
	v.Evidence = append([]report.Evidence{
		{Text: "part of the wait in which connections are opened", Value: part, Unit: "share"},
		{Text: "requests that open one", Value: float64(a.Opening), Unit: "count"},
	}, v.Evidence...)
	if part < scale.Half {
		v.Fix += "; of the rest, " + rest
	}
	v.Share *= part
	if a.Opening < scale.Enough || float64(a.Opening) < scale.Half*float64(cl.g.Count) {
		v.Usual = report.SeverityLow
		return false
	}
	v.Won, v.Most, v.Changes = c.won.times(part), "", []predict.Change{}
	v.Won.Times = scale.Far
	return true
}

// sayAtOnce says of what requests ask all at once that the slowest answer decides. Where none is far slower than the others, the peers take that long:
// it is not for the service to change.
func sayAtOnce(v *Verdict, a *queues.Asks) {
	n := float64(a.Legs) / float64(a.Requests)
	times := words.Figure(n)
	v.Evidence = append([]report.Evidence{
		{Text: "goroutines that ask at the same time, per request", Value: n, Unit: "count"},
		{Text: "mean time of the last of them", Value: float64(a.LastNS) / float64(a.Requests), Unit: "ns"},
		{Text: "mean time of the others", Value: float64(a.BesideNS) / float64(a.Requests), Unit: "ns"},
	}, v.Evidence...)
	v.Title = fmt.Sprintf("requests wait for the last of %s answers, for which they ask in parallel, at %s", times, place(v.Site))
	v.Fix = "find out why that peer is slow, or answer without it after a deadline"
	if a.LastNS < scale.Far*a.BesideNS {
		v.Fix = fmt.Sprintf("nothing here, unless the peers are slower than they should be: the questions already run in parallel, the last answer takes %s, and the others %s on average",
			words.Brief(a.LastNS/a.Requests), words.Brief(a.BesideNS/a.Requests))
		v.Most, v.Changes = report.SeverityLow, []predict.Change{}
	}
}

// mayBeClient reports whether a wait for the network may be one for a client's next words: in a process that accepts connections for a
// protocol of its own, where a goroutine's life goes on in the service's own code, or where turns of a loop begin.
func (cl *claims) mayBeClient(c *report.Cause, via []report.Via) bool {
	if !cl.in.Accepts || c.Cause != report.CauseNetwork || c.Site == nil || c.Site.Module != "" || isStd(c.Site) {
		return false
	}
	return cl.g.Kind == report.KindGoroutine && len(via) == 0 || slices.ContainsFunc(cl.in.Report.Groups, func(g report.Group) bool {
		return g.Kind == report.KindLoop && g.Entry != nil && g.Entry.LineKey() == c.Site.LineKey()
	})
}

// asks returns how requests ask from the line of a part, nil if that was not seen.
func (cl *claims) asks(p *part) *queues.Asks {
	var via *report.Site
	if v, _ := verdict.Beyond(p.via); len(v) > 0 {
		via = v[0].Site
	}
	list := cl.in.Asks[cl.g.ID]
	i := slices.IndexFunc(list, func(a queues.Asks) bool {
		return a.Site.Meets(p.Site) && (a.Via == nil) == (via == nil) && a.Via.Meets(via)
	})
	if i < 0 {
		return nil
	}
	return &list[i]
}

// sayInRow says that requests ask for one thing after the other, and what asking once would win, and asking for all at once.
func (cl *claims) sayInRow(v *Verdict, top *part, row *queues.Asks) {
	n := float64(row.Calls) / float64(row.Requests)
	times := words.Figure(n)
	v.Title = fmt.Sprintf("requests ask a peer %s times one after the other, at %s", times, place(v.Site))
	v.Fix = "ask once for all of it (a join, a list of keys, a batch or a pipeline), or ask in parallel"
	if l := libraryOf(top); l != nil && l.peer != "" {
		v.Fix = "ask once for all of it, or ask in parallel; in " + l.name + ": " + l.peer
	}
	v.Evidence = append([]report.Evidence{
		{Text: "sequential answers per request, asked for from one line", Value: n, Unit: "count"},
		{Text: "mean wait for each", Value: float64(row.NS) / float64(row.Calls), Unit: "ns"},
	}, v.Evidence...)
	v.Changes = nil
	if cl.in.Predict == nil {
		return
	}
	// A wait of the reader of a shared connection is for no line in particular.
	part := 1.0
	if len(top.via) > 0 {
		part = cl.lineOf(top.Site)
	}
	predicted := func(scale float64, says string) *report.Predicted {
		scale = 1 - (1-scale)*part
		p := cl.in.Predict(cl.g.ID, []predict.Change{{Cause: report.CauseNetwork, Site: predict.SiteText(top.Site, report.CauseNetwork), Relative: true, Scale: scale, Own: true}})
		if p != nil {
			p.Says = says
		}
		return p
	}
	v.Predicted = predicted(1/n, "with one question instead of "+times)
	if p := predicted(float64(row.LongestNS)/float64(row.NS), ""); p != nil {
		v.Evidence = append(v.Evidence, report.Evidence{Text: "if all were asked in parallel, each answer as long as the longest: p50", Value: float64(p.P50NS.Est), Unit: "ns"})
	}
}

// lineOf returns which part of the group's waits for the network at a place are for the line that it is called from.
func (cl *claims) lineOf(s *report.Site) float64 {
	var line, all float64
	for i := range cl.g.Bands[0].Causes {
		if c := &cl.g.Bands[0].Causes[i]; c.Cause == report.CauseNetwork && c.Site != nil && c.Site.LineKey() == s.LineKey() {
			if all += c.Share; c.Site.Meets(s) {
				line += c.Share
			}
		}
	}
	if line == 0 {
		return 1
	}
	return line / all
}

// isWrite reports whether a call writes to a connection: it waits where the other end does not read.
func isWrite(call string) bool {
	return strings.HasPrefix(call, "net.(*") && strings.HasSuffix(call, ").Write") || call == "net.(*Buffers).WriteTo" || call == "crypto/tls.(*Conn).Write"
}

// wentTo says in brackets on what the slow requests of a group spent most of
// their time; "" if that is not known.
func wentTo(r *report.Report, id string) string {
	for i := range r.Groups {
		g := &r.Groups[i]
		if g.ID != id || len(g.Bands) == 0 {
			continue
		}
		for k := range g.Tail().Causes {
			if c := &g.Tail().Causes[k]; c.Site != nil && c.Share >= 0.2 { // the largest comes first
				return fmt.Sprintf(" (%s of its slow requests' time is %s at %s)", words.Percent(c.Share), c.Cause, place(c.Site))
			}
		}
	}
	return ""
}

// readLate returns what requests of a band lost because a goroutine that reads answers for others, where this claim's waits are,
// was ready to run, or had its message, and did not. On its own goroutine a request sends before it waits; elsewhere somebody
// sends for it, who queues for the same Ps, and until he does the peer was not asked.
func (c *claim) readLate(b *report.Band) Lost {
	if b == nil || b.Count == 0 {
		return Lost{}
	}
	share, ns := 0.0, int64(0)
	for i := range b.Causes {
		late := &b.Causes[i]
		if !isSched(late) || late.Site == nil || !slices.ContainsFunc(c.parts, func(p part) bool { return len(p.via) > 0 && p.Site.Meets(late.Site) }) {
			continue
		}
		mine, all := onRoutes(late, func(_ *report.Cause, via []report.Via) bool { return len(via) > 0 })
		if all > 0 {
			share += late.Share * float64(mine) / float64(all)
			ns += int64(float64(late.TotalNS) * float64(mine) / float64(all))
		}
	}
	return Lost{Share: share, NS: ns / int64(b.Count)}
}

// without takes away what was lost for another reason.
func (l Lost) without(o Lost) Lost {
	l.Share, l.NS = max(0, l.Share-o.Share), max(0, l.NS-o.NS)
	return l
}

// ofPeer is what a fix would win of waiting for a peer. Where most requests wait for it, of slow ones counts what they wait
// beyond the mean of those that waited at all: what an answer always takes is told by all of them. Where few do, what is
// usual is not to wait. Answers that were late at the same time were late once: the peer, or the machine, stood still. Outliers of
// a few such moments are few, however many requests met them.
func (cl *claims) ofPeer(c *claim) Won {
	w := c.won
	usual := int64(0)
	for i := range c.parts {
		if p := &c.parts[i]; p.Requests > 0 && float64(p.Requests) >= scale.Half*float64(cl.g.Count) {
			usual = max(usual, p.TotalNS/int64(p.Requests))
		}
	}
	beyond := func(l Lost) Lost {
		if l.NS > 0 {
			l.Share *= float64(max(0, l.NS-usual)) / float64(l.NS)
		}
		l.NS = max(0, l.NS-usual)
		return l
	}
	slow, beside := beyond(w.Slow()), beyond(w.Beside)
	if n, known := cl.in.Apart[cl.g.ID]; known && areFew(n, cl.g.Count) {
		if cl.g.Tail().Band == report.BandOutliers {
			slow.Few = true
		} else {
			beside.Few = true
		}
	}
	w.SlowShare, w.SlowNS, w.SlowFew, w.Beside = slow.Share, slow.NS, slow.Few, beside
	w.Times = scale.Far
	return w
}

// weighGap is the share of a group's time in which data may have been there
// without anybody looking.
func weighGap(g *report.Group) float64 {
	share, _ := Weigh(g, func(c *report.Cause) bool { return c.Cause == report.CauseSchedPoll })
	return share
}

// callEvidence names the library functions at either end of a wait.
func callEvidence(c *claim, p *part) []report.Evidence {
	var out []report.Evidence
	if s := c.slowPart(p); s != nil {
		p = s
	}
	if call := inCall(p.Call); call != "" {
		out = append(out, report.Evidence{Text: "in " + call + ": mean latency of those requests", Value: float64(p.TotalNS) / float64(max(p.Requests, 1)), Unit: "ns"})
	}
	return out
}

func isDNS(fn string) bool {
	return strings.HasPrefix(fn, "net.(*Resolver).") || strings.HasPrefix(fn, "net.cgoLookup") || strings.HasPrefix(fn, "net._C") || strings.HasPrefix(fn, "net.Lookup") ||
		strings.HasPrefix(fn, "net.doBlockingWithCtx")
}
