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
	URL           string    // of the trace, redacted
	Host          string    // host and port
	Start         time.Time // when the trace was asked for
	Requested     time.Duration
	Window        time.Duration // what the endpoint was asked for: Asked in whole seconds
	Received      time.Duration // from the request to the last byte of the trace
	Bytes         int64         // of the trace
	TraceVersion  string        // from its header: "go 1.26"
	Partial       bool          // the trace ended before its time
	HasGeneration bool          // set by Save: the trace is whole, or holds at least one whole generation
	Warnings      []bundle.Warning

	CPUProfile, AllocsProfile bool // set by Save: they are in the file
	// HostFacts is set by Save: what the service ran on, if host samples are in the file; HostSamples is how many.
	HostFacts   *bundle.Host
	HostSamples int
}

// Stream is a trace that is being recorded. Read it to its end, from one goroutine; a slow reader slows the sending
// service down, so do not wait for anything between two reads.
type Stream struct {
	client   *client
	ctx      context.Context
	cancel   context.CancelCauseFunc
	seconds  int
	traceURL string // redacted URL

	body     io.Reader
	resp     *http.Response
	watchdog *time.Timer
	endErr   error // what Read returned last; written by Read under mu

	cpu, allocs    *profile
	cancelProfiles context.CancelFunc

	receivedBytes atomic.Int64
	requestOffset atomic.Int64 // ns since begin; 0 until the request is on its way
	openTime      time.Time    // a moment before start, with the monotonic clock
	lastByteTime  time.Duration

	mu     sync.Mutex
	result Result
	conn   net.Conn // of the trace

	stopProgress func()
	closeOnce    sync.Once
}

// Open asks for a trace and returns when it has begun to arrive and looks like one, which takes up to a second (a quiet
// service of Go 1.22 or later sends once a second). Errors are of type *[Error].
//
// Cancelling the context ends the recording; Read then returns an error that wraps context.Canceled.
func Open(ctx context.Context, target string, options Options) (*Stream, error) {
	endpoint, urlLogin, err := ParseEndpoint(target)
	if err != nil {
		return nil, err
	}
	c, err := newClient(ctx, endpoint, urlLogin, options)
	if err != nil {
		return nil, err
	}
	s := &Stream{client: c, seconds: c.options.seconds(), openTime: time.Now()}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.client.findHandlers(s.ctx)
	s.traceURL = Redact(c.endpoint.TraceURL(s.seconds))
	s.result = Result{URL: c.endpoint.String(), Host: c.endpoint.Host(), Requested: c.options.Duration, Window: time.Duration(s.seconds) * time.Second}
	s.warnAboutOptions()
	s.startProgress()
	if e := s.request(); e != nil {
		s.Close()
		return nil, e
	}
	return s, nil
}

func (s *Stream) warnAboutOptions() {
	if s.result.Window != s.result.Requested {
		s.warn(WarnRounded, fmt.Sprintf("recording %v instead of %v: the endpoint takes whole seconds", s.result.Window, s.result.Requested))
	}
	if s.client.options.TLS.Insecure {
		s.warn(WarnInsecure, "the server's certificate is not verified (--insecure): anyone on the network path can read and change the data")
	}
	if s.client.hasCredentials && s.client.endpoint.base.Scheme == "http" && !isLoopback(s.client.endpoint.base.Hostname()) {
		s.warn(WarnCleartext, "credentials are sent over plain http: use https if the network is not yours")
	}
}

func isLoopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func (s *Stream) warn(code, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Warnings = append(s.result.Warnings, bundle.Warning{Code: code, Text: text})
}

const opTrace = "recording a trace from"

func (s *Stream) request() *Error {
	profilesCtx, cancel := context.WithTimeoutCause(s.ctx,
		time.Duration(s.seconds+1)*time.Second+2*s.client.options.ConnectTimeout+s.client.options.Grace, errNoProgress)
	s.cancelProfiles = cancel
	if !s.client.options.NoCPU {
		// It is a second longer than the trace, to cover its end, if the service allows that.
		s.cpu = startProfile(profilesCtx, s.client, "profile", s.seconds+1, s.seconds)
		s.cpu.waitUntilRunning()
		if e := s.cpu.failure(); e != nil && !s.cpu.isRequestSent() {
			// The trace would find the same closed door, perhaps after the same long wait.
			s.cpu = nil
			e.Op, e.URL = opTrace, s.traceURL
			return e
		}
	}
	if !s.client.options.NoAllocs {
		s.allocs = startProfile(profilesCtx, s.client, "allocs", s.seconds, 0)
	}

	s.watchdog = time.AfterFunc(2*s.client.options.ConnectTimeout+s.result.Window+s.client.options.Grace, func() { s.cancel(errNoProgress) })
	ctx := httptrace.WithClientTrace(s.ctx, &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.conn = c.Conn
		},
		WroteRequest: func(httptrace.WroteRequestInfo) { s.requestOffset.Store(int64(time.Since(s.openTime))) },
	})
	requestTime := time.Now()
	resp, err := s.client.get(ctx, s.client.endpoint.TraceURL(s.seconds))
	if err != nil {
		return s.client.describeRequest(s.ctx, opTrace, s.traceURL, err)
	}
	s.requestOffset.CompareAndSwap(0, int64(requestTime.Sub(s.openTime)))
	s.resp = resp
	s.mu.Lock()
	s.result.Start = s.openTime.Add(time.Duration(s.requestOffset.Load()))
	s.mu.Unlock()
	if resp.StatusCode != http.StatusOK {
		e := s.client.statusError(opTrace, resp, s.seconds)
		if e.Kind == TooLong {
			if longest := s.client.longestDuration(s.ctx, s.seconds); longest > 0 {
				e.Remedy = fmt.Sprintf("-d %ds would fit; or raise WriteTimeout, or serve net/http/pprof from a separate http.Server", longest)
			}
		}
		return e
	}
	return s.checkHeader()
}

// Read reads the trace. At its regular end it returns io.EOF; when the trace ended before its time, an *[Error] of kind
// Cut, Interrupted or Timeout. What was read until then is usable: a trace loses its last second at most.
func (s *Stream) Read(p []byte) (int, error) {
	if s.endErr != nil {
		return 0, s.endErr
	}
	// Silence is allowed until some time after the window; later, for that time between any two reads.
	s.watchdog.Reset(max(s.result.Window-s.elapsed(), 0) + s.client.options.Grace)
	n, err := s.body.Read(p)
	s.watchdog.Stop()
	if n > 0 {
		s.receivedBytes.Add(int64(n))
		s.lastByteTime = s.elapsed()
	}
	if err == nil {
		err = s.checkBounds()
	}
	if err != nil {
		err = s.finish(err)
		s.mu.Lock()
		s.endErr = err
		s.mu.Unlock()
		return n, err
	}
	return n, nil
}

// A trace ends when the window is over, and what was not sent until then follows at the speed of the network. A server that goes
// on twice as long, or sends more than a machine of 64 cores writes (8 MB/s a core, measured on a busy HTTP server), is broken or
// means harm.
const (
	baseBytes      = 256 << 20
	bytesPerSecond = 512 << 20
)

// An endless says why no more is read from a server that does not end.
type endlessError struct{ text string }

func (e *endlessError) Error() string { return e.text }

// checkBounds returns an error once the server has sent for too long or too much.
func (s *Stream) checkBounds() error {
	if limit := 2 * (s.result.Window + s.client.options.Grace); s.lastByteTime > limit {
		return &endlessError{fmt.Sprintf("the server still sends after %v", s.lastByteTime.Round(time.Second))}
	}
	if limit := s.client.options.MaxBytes; limit > 0 && s.receivedBytes.Load() > limit {
		return &endlessError{fmt.Sprintf("it is larger than %s, after %v", words.Bytes(limit), s.lastByteTime.Round(10*time.Millisecond))}
	}
	if limit := baseBytes + bytesPerSecond*int64(s.seconds); s.receivedBytes.Load() > limit {
		return &endlessError{fmt.Sprintf("the server has sent an implausible amount, %s in %v", words.Bytes(s.receivedBytes.Load()), s.lastByteTime.Round(10*time.Millisecond))}
	}
	return nil
}

// elapsed is the time since the trace was asked for.
func (s *Stream) elapsed() time.Duration {
	return time.Since(s.openTime) - time.Duration(s.requestOffset.Load())
}

// finish decides what the end of the body means.
func (s *Stream) finish(err error) error {
	s.resp.Body.Close()
	received := s.elapsed()
	s.mu.Lock()
	s.result.Received, s.result.Bytes = received, s.receivedBytes.Load()
	s.mu.Unlock()
	isEarly := received < s.result.Window-s.result.Window/100
	// Without chunks and length, HTTP/1 ends a body by closing the connection: an end and a cut look alike.
	isAmbiguous := s.resp.ProtoMajor == 1 && s.resp.ContentLength < 0 && len(s.resp.TransferEncoding) == 0
	if errors.Is(err, io.EOF) && !(isEarly && isAmbiguous) {
		if isEarly {
			s.warn(WarnShort, fmt.Sprintf("the service ended the trace after %v of %v: it limits the duration, or was shutting down",
				received.Round(10*time.Millisecond), s.result.Window))
		}
		return io.EOF
	}
	e := s.client.describe(s.ctx, opTrace, s.traceURL, err)
	var endlessErr *endlessError
	if errors.As(err, &endlessErr) {
		s.cancel(errFinished) // its connection
		e.Kind, e.Err = Cut, io.ErrUnexpectedEOF
	}
	s.mu.Lock()
	s.result.Partial = true
	s.mu.Unlock()
	progress := fmt.Sprintf("after %v of %v (%s)", received.Round(10*time.Millisecond), s.result.Window, words.Bytes(s.receivedBytes.Load()))
	switch {
	case endlessErr != nil:
		e.Text = fmt.Sprintf("the trace of %v was abandoned: %s", s.result.Window, endlessErr.text)
		e.Remedy = "what arrived before that is kept; check what serves this address"
	case e.Kind == Interrupted:
		e.Text = "interrupted " + progress
		s.warn(WarnStopped, "the trace was "+e.Text)
		return e
	case e.Kind == Timeout:
		e.Text = fmt.Sprintf("no data for %v %s", s.client.options.Grace, progress)
	default:
		e.Kind, e.Text = Cut, "the trace was cut "+progress
		e.Err = io.ErrUnexpectedEOF
		e.Remedy = s.explainCut(s.lastByteTime)
	}
	s.warn(WarnCut, e.Text+": "+e.Remedy)
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
	r := s.result
	r.Warnings = slices.Clone(r.Warnings)
	for _, p := range []*profile{s.cpu, s.allocs} {
		if e := p.failure(); e != nil && e.Kind != Interrupted {
			r.Warnings = append(r.Warnings, p.warning())
		}
	}
	if s.endErr == nil {
		r.Bytes, r.Partial = s.receivedBytes.Load(), true
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
		if s.cancelProfiles != nil {
			s.cancelProfiles()
		}
		s.stopProgress()
		s.client.transport.CloseIdleConnections()
	})
	return nil
}

const progressInterval = 100 * time.Millisecond

// startProgress begins the calls of Options.Progress, all from one goroutine.
func (s *Stream) startProgress() {
	s.stopProgress = func() {}
	call := s.client.options.Progress
	if call == nil {
		return
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	report := func(done bool) {
		p := Progress{Bytes: s.receivedBytes.Load(), Total: s.result.Window, Done: done}
		if s.requestOffset.Load() != 0 {
			p.Elapsed = s.elapsed()
		}
		call(p)
	}
	go func() {
		defer close(stopped)
		tick := time.NewTicker(progressInterval)
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
