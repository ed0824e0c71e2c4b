package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/exchange"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Service is one of several that were recorded in the same seconds.
type Service struct {
	// Options has the service's name, its recording's parts, and Reopen, which opens its trace.
	Options
	// Annotate, if not nil, adds to the service's report what its recording says.
	Annotate     func(*report.Report)
	startedTrace *openedTrace
	preview      *tracePreview
	report       *report.Report
	server       *exchange.Server
}

// remotes are the services that a reading may find to answer network waits.
type remotes struct {
	causes  *exchange.Causes
	servers []remoteServer
	server  *exchange.Server         // the result: what the process served
	calls   []exchange.Call          // the result: the calls of walked requests that were joined
	callees map[*exchange.Server]int // and all joined exchanges
	links   map[*exchange.Server]exchange.Link
	// ambiguous counts the calls that may be for several requests.
	ambiguous map[*exchange.Server]int
	// clients, if not nil, are those of the whole trace.
	clients *exchange.Joiner
	// startedTrace, if not nil, is the trace, for the first reading.
	startedTrace *openedTrace
	// onServed is called when server is known. The rest of the explanation does not need the other services.
	onServed func()
}

// An openedTrace is a trace whose beginning may have been decoded.
type openedTrace struct {
	file    io.Closer
	reader  *tracefmt.Reader
	decoder *timeline.Decoder
}

// takeStarted returns the trace whose beginning has been decoded, once; then nil.
func (r *remotes) takeStarted() (startedTrace *openedTrace) {
	if r != nil {
		startedTrace, r.startedTrace = r.startedTrace, nil
	}
	return startedTrace
}

// A remoteServer has the requests of a called service, and the relation of its clock to the caller's.
type remoteServer struct {
	*exchange.Server
	exchange.Link
}

// ExplainServices explains several services that were recorded in the same seconds, in one report. It reads the beginnings of all
// traces to find which services call which. Then it reads each service's trace after those of the services that it calls, so that the
// callers' paths continue in them. The decoded beginnings are used again, because decoding takes a tenth of the CPU time.
func ExplainServices(ctx context.Context, services []*Service) (*report.Report, error) {
	defer func() {
		for _, s := range services {
			s.end()
		}
	}()
	previewAll := func(maxBytes int64) error {
		var previews sync.WaitGroup
		errs := make([]error, len(services))
		for i, s := range services {
			if s.preview == nil || !s.preview.isWhole {
				previews.Go(func() { s.preview, errs[i] = s.readPreview(ctx, maxBytes) })
			}
		}
		previews.Wait()
		return cmp.Or(errs...)
	}
	if err := previewAll(previewBytes); err != nil {
		return nil, err
	}
	callees, links := findCallees(services)
	if !slices.ContainsFunc(callees, func(list []int) bool { return len(list) > 0 }) { // the beginning may lack the calls
		if err := previewAll(1 << 62); err != nil {
			return nil, err
		}
		callees, links = findCallees(services)
	}
	order, depths := orderByCalls(callees)
	causes := exchange.NewCauses()
	errs := make([]error, len(services))
	var explanations sync.WaitGroup
	slots := make(chan struct{}, maxExplanations)
	for _, i := range order {
		s := services[i]
		isServed := make(chan struct{})
		s.Options.remotes = &remotes{causes: causes, onServed: sync.OnceFunc(func() { close(isServed) })}
		if s.preview.isWhole {
			s.Options.remotes.clients = s.preview.clients
		}
		for _, k := range callees[i] {
			if callee := services[k]; callee.server != nil {
				s.Options.remotes.servers = append(s.Options.remotes.servers, remoteServer{callee.server, links[i][callee.preview.server]})
			}
		}
		slots <- struct{}{}
		explanations.Go(func() {
			defer func() { <-slots }()
			defer s.Options.remotes.onServed()
			errs[i] = s.explain(ctx)
		})
		<-isServed
		if s.server = s.Options.remotes.server; s.server == nil {
			break // its error ends the explanation
		}
	}
	explanations.Wait()
	var refusals []error
	for _, i := range order {
		s, err := services[i], errs[i]
		switch {
		case errors.Is(err, ErrWhatIf) && s.report != nil: // the change may be of another service
			refusals = append(refusals, err)
		case err != nil:
			return nil, err
		}
		if s.Annotate != nil {
			s.Annotate(s.report)
		}
		s.addClockErrors()
	}
	// Callers come first, and of them the one with the most calls. Services without a call come last.
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(services[b].connectedRank(services), services[a].connectedRank(services)), cmp.Compare(depths[a], depths[b]), cmp.Compare(services[b].callCount(), services[a].callCount()), cmp.Compare(a, b))
	})
	out := mergeServices(services, order)
	if len(refusals) == len(services) {
		return out, refusals[len(refusals)-1]
	}
	return out, nil
}

// maxExplanations bounds how many services are explained at a time: while the findings of one are searched, the trace of the next one is
// read.
const maxExplanations = 2

// explain sets the service's report.
func (s *Service) explain(ctx context.Context) (err error) {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	s.Options.remotes.startedTrace = s.startedTrace
	s.startedTrace.decoder.KeepsGenerations = false
	s.startedTrace.decoder.Rewind()
	s.report, err = Explain(ctx, nil, s.Options)
	return err
}

// addClockErrors sets the possible error of the clocks on segments of shown requests that are on the way to or from another
// service.
func (s *Service) addClockErrors() {
	slacks := make(map[string]int64)
	for callee, link := range s.remotes.links {
		_, slacks[callee.Name] = link.OffsetAt(callee.From)
	}
	add := func(r *report.Request) {
		for i := range r.Segments {
			if way := &r.Segments[i]; way.WayTo != "" {
				way.ClockErrorNS = slacks[way.WayTo]
			}
		}
	}
	for g := range entry.Each(s.report.Groups) {
		for k := range g.Slowest {
			add(&g.Slowest[k])
		}
		if g.Typical != nil {
			add(g.Typical)
		}
	}
}

// callCount returns the number of the service's calls that are joined.
func (s *Service) callCount() (n int) {
	for _, calls := range s.remotes.callees {
		n += calls
	}
	return n
}

// connectedRank returns 1 for a service that joined calls connect to another one, else 0.
func (s *Service) connectedRank(services []*Service) int {
	isCalled := func(o *Service) bool { return o.remotes.callees[s.server] > 0 }
	if s.callCount() > 0 || slices.ContainsFunc(services, isCalled) {
		return 1
	}
	return 0
}

// previewBytes is how much of a trace is read in advance, to find which services call which.
const previewBytes = 4 << 20

// maxPreviewGenerations bounds how many generations of a whole trace are in memory while it is read in advance.
const maxPreviewGenerations = 8

// A tracePreview is what the beginning of a trace shows about a service's calls.
type tracePreview struct {
	clock   exchange.Clock
	clients *exchange.Joiner
	server  *exchange.Server
	isWhole bool
}

// begin opens the trace, if it is not open, and keeps its decoded beginning.
func (s *Service) begin() error {
	if s.startedTrace != nil {
		return nil
	}
	trace, err := s.Reopen()
	if err != nil {
		return fmt.Errorf("%s: %w", s.name(), err)
	}
	reader, err := newReader(trace, s.Options)
	if err != nil {
		trace.Close()
		return err
	}
	s.startedTrace = &openedTrace{trace, reader, timeline.NewDecoder(reader, cmp.Or(s.Workers, runtime.GOMAXPROCS(0)))}
	s.startedTrace.decoder.KeepsGenerations = true
	return nil
}

// end closes the trace, if it is open.
func (s *Service) end() {
	if s.startedTrace != nil {
		s.startedTrace.decoder.Close()
		s.startedTrace.file.Close()
		s.startedTrace = nil
	}
}

// readPreview reads the beginning of a trace, maxBytes or at least one generation, and returns its clock, client connections and
// served requests. Of more than previewBytes, nothing is kept for the next reading.
func (s *Service) readPreview(ctx context.Context, maxBytes int64) (*tracePreview, error) {
	if maxBytes > previewBytes {
		s.end()
		defer s.end()
	}
	if err := s.begin(); err != nil {
		return nil, err
	}
	decoder := s.startedTrace.decoder
	decoder.KeepsGenerations = maxBytes <= previewBytes
	decoder.Rewind()
	var window timeline.Window
	symbols := tracefmt.Symbols{}
	finder := request.NewFinder(&symbols, &window, request.Options{Workers: s.Workers, IgnoreMarks: s.IgnoreMarks})
	decoder.Classify = request.NewClassifier(decoder.Symbols).Flags
	out := &tracePreview{clients: exchange.NewJoiner(), server: exchange.NewServer(s.name())}
	answers := exchange.NewAnswerFinder(&window, &symbols)
	out.clients.SetWindow(&window)
	add := func(list []request.Request) {
		for i := range list {
			if r := &list[i]; !r.CutAtStart && exchange.HasClient(r) {
				if served := exchange.NewRequest(r, &window, answers); !r.Open || served.IsStream {
					out.server.Add(served)
				}
			}
		}
	}
	for {
		g, err := decoder.Next(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", s.name(), context.Cause(ctx))
		}
		if err != nil || g == nil {
			out.isWhole = errors.Is(err, io.EOF)
			out.clients.IsComplete = out.isWhole
			break
		}
		if len(window.Gens) == 0 {
			out.clock, out.server.From = exchange.ClockOf(g.Snapshot, g.SnapshotTime), g.Base
		}
		finder.InternMarks(decoder.Symbols, g)
		symbols = decoder.Symbols.Snapshot()
		window.Gens = append(window.Gens, g)
		out.server.To = g.End
		out.clients.AddGeneration(g, &symbols, false)
		add(finder.Add(g))
		if !decoder.KeepsGenerations && len(window.Gens) > maxPreviewGenerations {
			decoder.Recycle(window.DropFirst())
		}
		if g.Offset+g.Bytes >= maxBytes {
			break
		}
	}
	if len(window.Gens) > 0 {
		add(finder.Finish(out.server.To))
	}
	out.server.Sort()
	out.clients.SetWindow(nil) // free its generations
	return out, nil
}

// findCallees returns, by service, the indexes of the services that it calls, and the relations of their clocks to its own, as
// the previews show.
func findCallees(services []*Service) (out [][]int, links []map[*exchange.Server]exchange.Link) {
	out, links = make([][]int, len(services)), make([]map[*exchange.Server]exchange.Link, len(services))
	for i, s := range services {
		joiner := s.preview.clients
		joiner.Reset()
		for k, other := range services {
			if k == i || !s.preview.clock.IsKnown || !other.preview.clock.IsKnown {
				continue
			}
			joiner.AddServer(other.preview.server, s.preview.clock.To(other.preview.clock))
		}
		joiner.Synchronise()
		joiner.Join()
		links[i] = joiner.Links()
		callees := joiner.Callees()
		for k, other := range services {
			if callees[other.preview.server] > 0 {
				out[i] = append(out[i], k)
			}
		}
	}
	return out, links
}

// orderByCalls returns the services in an order in which each comes after those that it calls. depths is, by service, the number
// of calls from a service that no other calls. It removes a call of each cycle from callees.
func orderByCalls(callees [][]int) (order, depths []int) {
	depths = make([]int, len(callees))
	state := make([]int, len(callees)) // 1: being visited, 2: done
	var visit func(i int)
	visit = func(i int) {
		state[i] = 1
		callees[i] = slices.DeleteFunc(callees[i], func(k int) bool { return state[k] == 1 })
		for _, k := range callees[i] {
			if state[k] == 0 {
				visit(k)
			}
		}
		state[i] = 2
		order = append(order, i)
	}
	isCalled := make([]bool, len(callees))
	for _, list := range callees {
		for _, k := range list {
			isCalled[k] = true
		}
	}
	for i := range callees {
		if !isCalled[i] {
			visit(i)
		}
	}
	for i := range callees { // only cycles are left
		if state[i] == 0 {
			visit(i)
		}
	}
	for i := len(order) - 1; i >= 0; i-- {
		for _, k := range callees[order[i]] {
			depths[k] = max(depths[k], depths[order[i]]+1)
		}
	}
	return order, depths
}

// newJoiner returns a joiner with the other services that this one calls, for one reading; nil if there are none.
func (o *Options) newJoiner() *exchange.Joiner {
	if o.remotes == nil || len(o.remotes.servers) == 0 {
		return nil
	}
	j := o.remotes.clients
	if j == nil {
		j = exchange.NewJoiner()
	}
	j.Reset()
	for _, s := range o.remotes.servers {
		j.AddServer(s.Server, s.Link)
	}
	if j.IsComplete {
		j.Join()
	}
	return j
}

// storeForCallers stores what the explanation of other services needs from this one: the requests that it served, with the time in
// queues, which are by group.
func (r *reading) storeForCallers(work *workSelection, queues map[string][]*report.Queue, sp *spell.Speller) {
	if out := r.opts.remotes; out != nil {
		withQueues := *sp
		withQueues.Queues = queues
		out.server = r.served.Server(r.opts.name(), out.causes, r.pass.Start, r.pass.End, r.translations, r.groups.GroupIDs(sp, work.shown), &withQueues)
		out.onServed()
	}
}

// storeCalls stores the calls of other services that were joined, and fills the groups' peers.
func (r *reading) storeCalls(rep *report.Report, table *groupTable) {
	if out := r.opts.remotes; r.joiner != nil {
		out.calls, out.callees, out.ambiguous, out.links = r.calls.List(r.translations), r.joiner.Callees(), r.joiner.AmbiguousCallees(), r.joiner.Links()
		r.fillPeers(rep, table, out.calls)
	}
}

// fillPeers sets the peer of each group whose calls another service answers: the group of that service with the most time.
func (r *reading) fillPeers(rep *report.Report, table *groupTable, calls []exchange.Call) {
	type key struct {
		caller         path.GroupID
		service, group string
	}
	type sum struct{ calls, waitNS, servedNS, thereNS, backNS int64 }
	sums, best := make(map[key]*sum), make(map[path.GroupID]key)
	for c := range entry.Each(calls) {
		k := key{c.Group, c.Service, c.RemoteAnswer.Group}
		s := entry.GetOrAdd(sums, k)
		from, to := max(c.Start, c.RemoteAnswer.Start), min(c.End, c.RemoteAnswer.End)
		s.calls, s.waitNS, s.servedNS = s.calls+1, s.waitNS+c.End-c.Start, s.servedNS+max(0, to-from)
		s.thereNS, s.backNS = s.thereNS+max(0, from-c.Start), s.backNS+max(0, c.End-to)
		if b, ok := best[c.Group]; !ok || b != k && s.servedNS > sums[b].servedNS {
			best[c.Group] = k
		}
	}
	for i, id := range table.pathIDs {
		k, ok := best[id]
		if g := &rep.Groups[i]; ok && k.group != "" {
			s := sums[k]
			forwardNS, returnNS := s.thereNS/s.calls, s.backNS/s.calls
			g.Peer = &report.Peer{
				Recording: k.service, Group: k.group, Joined: true, Waits: int(s.calls), Held: int(s.calls), Confidence: 1,
				WaitNS: s.waitNS / s.calls, ServedNS: s.servedNS / s.calls, ThereNS: &forwardNS, BackNS: &returnNS,
			}
		}
	}
}
