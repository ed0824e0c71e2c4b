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
	WarnCPU       = "cpu-profile"    // no CPU profile of the whole time
	WarnAllocs    = "allocs-profile" // no allocation profile
	WarnShort     = "short"          // the service ended the trace early, without an error
	WarnCut       = "cut"            // the connection broke: the trace lacks its last second
	WarnStopped   = "interrupted"    // the recording was interrupted: the trace lacks its last second
)

// A Result describes a recording.
type Result struct {
	URL           string    // of the trace, redacted
	Host          string    // host and port
	Start         time.Time // time of the request for the trace
	Requested     time.Duration
	Window        time.Duration // Requested in whole seconds, as the request has it
	Received      time.Duration // from the request to the last byte of the trace
	Bytes         int64         // of the trace
	TraceVersion  string        // from its header: "go 1.26"
	Partial       bool          // the trace ended before its time
	HasGeneration bool          // set by Save: the trace has at least one complete generation
	Warnings      []bundle.Warning

	CPUProfile, AllocsProfile bool // set by Save: the file has them
	// HostFacts and HostSamples are set by Save if the file has host samples: the facts about the
	// service's machine and process, and the number of samples.
	HostFacts   *bundle.Host
	HostSamples int
	// Kernel is set by Save if the file has the kernel's events.
	Kernel *bundle.Kernel
}

// A Stream is a trace that is being recorded. One goroutine reads it to its end without waiting for
// anything between two reads: a slow reader blocks the service.
type Stream struct {
	client   *client
	ctx      context.Context
	cancel   context.CancelCauseFunc
	seconds  int
	traceURL string // redacted URL

	body     io.Reader
	resp     *http.Response
	watchdog *time.Timer
	endErr   error // the error that Read returned; Read writes it under mu

	cpu, allocs    *profile
	cancelProfiles context.CancelFunc

	receivedBytes atomic.Int64
	requestOffset atomic.Int64 // ns since openTime; 0 until the request has been sent
	openTime      time.Time    // before the request, with the monotonic clock
	lastByteTime  time.Duration

	mu     sync.Mutex
	result Result
	conn   net.Conn // of the trace

	stopProgress func()
	closeOnce    sync.Once
}

// Open requests a trace and returns when its header has arrived, which takes up to a second: a quiet
// service of Go 1.22 or later sends once a second. Errors are of type *[Error].
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

// warnAboutOptions adds the warnings that follow from the options: a rounded duration, an unverified certificate, credentials in clear text.
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

// isLoopback reports whether a host without a port is localhost, a name below .localhost, or a loopback address.
func isLoopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// warn adds a warning to the result. It may be called concurrently.
func (s *Stream) warn(code, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Warnings = append(s.result.Warnings, bundle.Warning{Code: code, Text: text})
}

const opTrace = "recording a trace from"

// request starts the profiles, requests the trace, and checks its header; it blocks until that has arrived. If the service refuses the length of the
// recording, the error names the longest that fits.
func (s *Stream) request() *Error {
	profilesCtx, cancel := context.WithTimeoutCause(s.ctx,
		time.Duration(s.seconds+1)*time.Second+2*s.client.options.ConnectTimeout+s.client.options.Grace, errNoProgress)
	s.cancelProfiles = cancel
	if !s.client.options.NoCPU {
		// One second longer than the trace, to cover its end, if the service allows that.
		s.cpu = startProfile(profilesCtx, s.client, "profile", s.seconds+1, s.seconds)
		s.cpu.waitUntilRunning()
		if e := s.cpu.failure(); e != nil && !s.cpu.isRequestSent() {
			// The request for the trace would fail in the same way, perhaps after the same timeout.
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

// Read reads the trace. It returns io.EOF at the regular end, and an *[Error] of kind Cut, Interrupted
// or Timeout if the trace ends early. The bytes read until then are usable: the trace lacks its last
// second at most.
func (s *Stream) Read(p []byte) (int, error) {
	if s.endErr != nil {
		return 0, s.endErr
	}
	// The server may be silent until Grace after the window, and from then on for Grace between two reads.
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

// A trace ends with its window; buffered data follows at the speed of the network. A server that sends for twice as long, or
// more than a machine of 64 cores writes (8 MB/s a core, measured on a busy HTTP server), is broken or malicious.
const (
	baseBytes      = 256 << 20
	bytesPerSecond = 512 << 20
)

// An endlessError is the reason to stop reading from a server that does not end the trace.
type endlessError struct{ text string }

func (e *endlessError) Error() string { return e.text }

// checkBounds returns an error if the server has sent for more than twice the recording's length and grace time, more than MaxBytes, or more than any
// service can in that time.
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

// elapsed returns the time since the request for the trace.
func (s *Stream) elapsed() time.Duration {
	return time.Since(s.openTime) - time.Duration(s.requestOffset.Load())
}

// finish closes the body after a read error and returns the error for the caller of Read: io.EOF for a
// regular end, else an *Error.
func (s *Stream) finish(err error) error {
	s.resp.Body.Close()
	received := s.elapsed()
	s.mu.Lock()
	s.result.Received, s.result.Bytes = received, s.receivedBytes.Load()
	s.mu.Unlock()
	isEarly := received < s.result.Window-s.result.Window/100
	// Without chunks and length, HTTP/1 ends a body by closing the connection, as does a broken connection.
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
		s.cancel(errFinished) // closes the connection
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

// Profiles waits for the profiles and returns them as gzipped pprof. A profile that was not requested
// or failed is nil; a failure is a warning. The CPU profile ends up to two seconds after the trace.
func (s *Stream) Profiles() (cpu, allocs []byte) { return s.cpu.wait(), s.allocs.wait() }

// Allocs waits for the allocation profile only; nil if it was not requested or failed. It ends
// together with the trace.
func (s *Stream) Allocs() []byte { return s.allocs.wait() }

// Result returns the present state of the recording, also while another goroutine reads. It is final once Read has returned an error and Profiles has
// returned.
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

// Close ends the recording, drops data that has not arrived, and waits until the profiles and the calls of Options.Progress have ended. Further calls
// do nothing.
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

// startProgress starts the goroutine that calls Options.Progress, if that is set, every progressInterval, and sets stopProgress, which makes the last
// call and waits for it.
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
