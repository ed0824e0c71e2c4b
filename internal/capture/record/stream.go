// Package record fetches execution traces from running services: from the trace handler of net/http/pprof, while a CPU
// profile runs beside it, so that the trace carries CPU samples (golang.org/issue/66679), and with the allocation
// profile of the same time.
//
//	s, err := record.Open(ctx, "http://localhost:6060", record.Options{Duration: 5 * time.Second})
//	...
//	defer s.Close()
//	_, err = io.Copy(dst, s)            // the trace, while it arrives
//	cpu, allocs := s.Profiles()         // what was recorded beside it
//	fmt.Println(s.Result().Warnings)
//
// [Save] does the same into a file, [SaveAll] for several services at once.
//
// # Order
//
// The CPU profile is asked for first and one second longer than the trace; the trace follows as soon as the profile can
// be assumed to run: its handler sends nothing until it ends, so there is only the time of a few round trips to go by.
// Each profile's failure is a warning.
//
// # Credentials
//
// User names, passwords, tokens, header values, and values of query parameters go to the endpoint's own origin and
// nowhere else: not to the target of a redirect on another host, not into errors, results, or files. Text that a server
// sends back is searched for them before it is quoted.
package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/output/words"
)

// Codes of warnings in Result.Warnings.
const (
	WarnRounded   = "rounded"        // the duration was rounded up to whole seconds
	WarnInsecure  = "insecure"       // the server's certificate was not verified
	WarnCleartext = "cleartext"      // credentials went over plain HTTP to another machine
	WarnCPU       = "cpu-profile"    // no CPU profile, or none of the whole time
	WarnAllocs    = "allocs-profile" // no allocation profile
	WarnShort     = "short"          // the service ended the trace early, in good order
	WarnCut       = "cut"            // the trace was cut: its last second is lost
	WarnStopped   = "interrupted"    // the recording was interrupted: its last second is lost
)

// Result says what a recording gave.
type Result struct {
	URL          string    // of the trace, redacted
	Host         string    // host and port
	Start        time.Time // when the trace was asked for
	Asked        time.Duration
	Window       time.Duration // what the endpoint was asked for: Asked in whole seconds
	Got          time.Duration // from the request to the last byte of the trace
	Bytes        int64         // of the trace
	TraceVersion string        // from its header: "go 1.26"
	Partial      bool          // the trace ended before its time
	Usable       bool          // set by Save: the trace is whole, or holds at least one whole generation
	Warnings     []bundle.Warning

	CPUProfile, AllocsProfile bool // set by Save: they are in the file
	// HostFacts is set by Save: what the service ran on, if host samples are in the file; HostSamples is how many.
	HostFacts   *bundle.Host
	HostSamples int
}

// Stream is a trace that is being recorded. Read it to its end, from one goroutine; a slow reader slows the sending
// service down, so do not wait for anything between two reads.
type Stream struct {
	c       *client
	ctx     context.Context
	cancel  context.CancelCauseFunc
	seconds int
	trace   string // redacted URL

	body     io.Reader
	resp     *http.Response
	watchdog *time.Timer
	ended    error // what Read returned last; written by Read under mu

	cpu, allocs *profile
	endProfiles context.CancelFunc

	bytes atomic.Int64
	start atomic.Int64 // ns since begin; 0 until the request is on its way
	begin time.Time    // a moment before start, with the monotonic clock
	last  time.Duration

	mu   sync.Mutex
	res  Result
	conn net.Conn // of the trace

	stopProgress func()
	closeOnce    sync.Once
}

// Open asks for a trace and returns when it has begun to arrive and looks like one, which takes up to a second (a quiet
// service of Go 1.22 or later sends once a second). Errors are of type *[Error].
//
// Cancelling the context ends the recording; Read then returns an error that wraps context.Canceled.
func Open(ctx context.Context, target string, opt Options) (*Stream, error) {
	end, inURL, err := ParseEndpoint(target)
	if err != nil {
		return nil, err
	}
	c, err := newClient(ctx, end, inURL, opt)
	if err != nil {
		return nil, err
	}
	s := &Stream{c: c, seconds: c.opt.seconds(), begin: time.Now()}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.c.findHandlers(s.ctx)
	s.trace = Redact(c.end.Trace(s.seconds))
	s.res = Result{URL: c.end.String(), Host: c.end.Host(), Asked: c.opt.Duration, Window: time.Duration(s.seconds) * time.Second}
	s.warnFirst()
	s.startProgress()
	if e := s.open(); e != nil {
		s.Close()
		return nil, e
	}
	return s, nil
}

func (s *Stream) warnFirst() {
	if s.res.Window != s.res.Asked {
		s.warn(WarnRounded, fmt.Sprintf("recording %v instead of %v: the endpoint takes whole seconds", s.res.Window, s.res.Asked))
	}
	if s.c.opt.TLS.Insecure {
		s.warn(WarnInsecure, "the server's certificate is not verified (--insecure): anyone on the network path can read and change the data")
	}
	if s.c.hasCredentials && s.c.end.base.Scheme == "http" && !loopback(s.c.end.base.Hostname()) {
		s.warn(WarnCleartext, "credentials are sent over plain http: use https if the network is not yours")
	}
}

func loopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func (s *Stream) warn(code, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.res.Warnings = append(s.res.Warnings, bundle.Warning{Code: code, Text: text})
}

const opTrace = "recording a trace from"

func (s *Stream) open() *Error {
	profilesCtx, cancel := context.WithTimeoutCause(s.ctx,
		time.Duration(s.seconds+1)*time.Second+2*s.c.opt.ConnectTimeout+s.c.opt.Grace, errNoProgress)
	s.endProfiles = cancel
	if !s.c.opt.NoCPU {
		// It is a second longer than the trace, to cover its end, if the service allows that.
		s.cpu = startProfile(profilesCtx, s.c, "profile", s.seconds+1, s.seconds)
		s.cpu.settle()
		if e := s.cpu.failed(); e != nil && !s.cpu.connected() {
			// The trace would find the same closed door, perhaps after the same long wait.
			s.cpu = nil
			e.Op, e.URL = opTrace, s.trace
			return e
		}
	}
	if !s.c.opt.NoAllocs {
		s.allocs = startProfile(profilesCtx, s.c, "allocs", s.seconds, 0)
	}

	s.watchdog = time.AfterFunc(2*s.c.opt.ConnectTimeout+s.res.Window+s.c.opt.Grace, func() { s.cancel(errNoProgress) })
	ctx := httptrace.WithClientTrace(s.ctx, &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.conn = c.Conn
		},
		WroteRequest: func(httptrace.WroteRequestInfo) { s.start.Store(int64(time.Since(s.begin))) },
	})
	asked := time.Now()
	resp, err := s.c.get(ctx, s.c.end.Trace(s.seconds))
	if err != nil {
		return s.c.describeRequest(s.ctx, opTrace, s.trace, err)
	}
	s.start.CompareAndSwap(0, int64(asked.Sub(s.begin)))
	s.resp = resp
	s.mu.Lock()
	s.res.Start = s.begin.Add(time.Duration(s.start.Load()))
	s.mu.Unlock()
	if resp.StatusCode != http.StatusOK {
		e := s.c.statusError(opTrace, resp, s.seconds)
		if e.Kind == TooLong {
			if fits := s.c.longest(s.ctx, s.seconds); fits > 0 {
				e.Do = fmt.Sprintf("-d %ds would fit; or raise WriteTimeout, or serve net/http/pprof from a separate http.Server", fits)
			}
		}
		return e
	}
	return s.checkHeader()
}

// Read reads the trace. At its regular end it returns io.EOF; when the trace ended before its time, an *[Error] of kind
// Cut, Interrupted or Timeout. What was read until then is usable: a trace loses its last second at most.
func (s *Stream) Read(p []byte) (int, error) {
	if s.ended != nil {
		return 0, s.ended
	}
	// Silence is allowed until some time after the window; later, for that time between any two reads.
	s.watchdog.Reset(max(s.res.Window-s.elapsed(), 0) + s.c.opt.Grace)
	n, err := s.body.Read(p)
	s.watchdog.Stop()
	if n > 0 {
		s.bytes.Add(int64(n))
		s.last = s.elapsed()
	}
	if err == nil {
		err = s.tooMuch()
	}
	if err != nil {
		err = s.end(err)
		s.mu.Lock()
		s.ended = err
		s.mu.Unlock()
		return n, err
	}
	return n, nil
}

// A trace ends when the window is over, and what was not sent until then follows at the speed of the network. A server that goes
// on twice as long, or sends more than a machine of 64 cores writes (8 MB/s a core, measured on a busy HTTP server), is broken or
// means harm.
const (
	bytesAtOnce = 256 << 20
	bytesASec   = 512 << 20
)

// An endless says why no more is read from a server that does not end.
type endless struct{ text string }

func (e *endless) Error() string { return e.text }

// tooMuch returns an error once the server has sent for too long or too much.
func (s *Stream) tooMuch() error {
	if most := 2 * (s.res.Window + s.c.opt.Grace); s.last > most {
		return &endless{fmt.Sprintf("the server still sends after %v", s.last.Round(time.Second))}
	}
	if most := s.c.opt.MaxBytes; most > 0 && s.bytes.Load() > most {
		return &endless{fmt.Sprintf("it is larger than %s, after %v", words.Bytes(most), s.last.Round(10*time.Millisecond))}
	}
	if most := bytesAtOnce + bytesASec*int64(s.seconds); s.bytes.Load() > most {
		return &endless{fmt.Sprintf("the server has sent an implausible amount, %s in %v", words.Bytes(s.bytes.Load()), s.last.Round(10*time.Millisecond))}
	}
	return nil
}

// elapsed is the time since the trace was asked for.
func (s *Stream) elapsed() time.Duration { return time.Since(s.begin) - time.Duration(s.start.Load()) }

// end decides what the end of the body means.
func (s *Stream) end(err error) error {
	s.resp.Body.Close()
	got := s.elapsed()
	s.mu.Lock()
	s.res.Got, s.res.Bytes = got, s.bytes.Load()
	s.mu.Unlock()
	early := got < s.res.Window-s.res.Window/100
	// Without chunks and length, HTTP/1 ends a body by closing the connection: an end and a cut look alike.
	ambiguous := s.resp.ProtoMajor == 1 && s.resp.ContentLength < 0 && len(s.resp.TransferEncoding) == 0
	if errors.Is(err, io.EOF) && !(early && ambiguous) {
		if early {
			s.warn(WarnShort, fmt.Sprintf("the service ended the trace after %v of %v: it limits the duration, or was shutting down",
				got.Round(10*time.Millisecond), s.res.Window))
		}
		return io.EOF
	}
	e := s.c.describe(s.ctx, opTrace, s.trace, err)
	var without *endless
	if errors.As(err, &without) {
		s.cancel(errFinished) // its connection
		e.Kind, e.Err = Cut, io.ErrUnexpectedEOF
	}
	s.mu.Lock()
	s.res.Partial = true
	s.mu.Unlock()
	after := fmt.Sprintf("after %v of %v (%s)", got.Round(10*time.Millisecond), s.res.Window, words.Bytes(s.bytes.Load()))
	switch {
	case without != nil:
		e.Text = fmt.Sprintf("the trace of %v was abandoned: %s", s.res.Window, without.text)
		e.Do = "what arrived before that is kept; check what serves this address"
	case e.Kind == Interrupted:
		e.Text = "interrupted " + after
		s.warn(WarnStopped, "the trace was "+e.Text)
		return e
	case e.Kind == Timeout:
		e.Text = fmt.Sprintf("no data for %v %s", s.c.opt.Grace, after)
	default:
		e.Kind, e.Text = Cut, "the trace was cut "+after
		e.Err = io.ErrUnexpectedEOF
		e.Do = s.whyCut(s.last)
	}
	s.warn(WarnCut, e.Text+": "+e.Do)
	return e
}

// Profiles waits for the profiles beside the trace and returns them, gzipped as pprof's tools read them; nil for one
// that was not wanted or could not be had (see the warnings). The CPU profile ends up to two seconds after the trace.
func (s *Stream) Profiles() (cpu, allocs []byte) { return s.cpu.wait(), s.allocs.wait() }

// Allocs waits for the allocation profile alone and returns it; nil if it was not wanted or could not be had. It ends
// when the trace does.
func (s *Stream) Allocs() []byte { return s.allocs.wait() }

// Result returns what has come so far: everything, once Read has returned an error and Profiles its profiles.
func (s *Stream) Result() Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.res
	r.Warnings = slices.Clone(r.Warnings)
	for _, p := range []*profile{s.cpu, s.allocs} {
		if e := p.failed(); e != nil && e.Kind != Interrupted {
			r.Warnings = append(r.Warnings, p.warning())
		}
	}
	if s.ended == nil {
		r.Bytes, r.Partial = s.bytes.Load(), true
	}
	return r
}

// Close ends the recording: what has not arrived by now is given up. It is safe to call more than once.
func (s *Stream) Close() error {
	s.closeOnce.Do(func() {
		s.cancel(errFinished)
		if s.watchdog != nil {
			s.watchdog.Stop()
		}
		if s.resp != nil {
			s.resp.Body.Close()
		}
		s.Profiles()
		if s.endProfiles != nil {
			s.endProfiles()
		}
		s.stopProgress()
		s.c.transport.CloseIdleConnections()
	})
	return nil
}

const progressEvery = 100 * time.Millisecond

// startProgress begins the calls of Options.Progress, all from one goroutine.
func (s *Stream) startProgress() {
	s.stopProgress = func() {}
	call := s.c.opt.Progress
	if call == nil {
		return
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	report := func(done bool) {
		p := Progress{Bytes: s.bytes.Load(), Total: s.res.Window, Done: done}
		if s.start.Load() != 0 {
			p.Elapsed = s.elapsed()
		}
		call(p)
	}
	go func() {
		defer close(stopped)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			report(false)
			select {
			case <-tick.C:
			case <-stop:
				report(true)
				return
			}
		}
	}()
	s.stopProgress = func() {
		close(stop)
		<-stopped
	}
}
