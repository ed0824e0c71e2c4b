package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/wire"
)

// maxProfile bounds a profile in memory. Profiles of real services have some MB.
const maxProfile = 64 << 20

// A profile is a CPU or allocation profile that is fetched concurrently with the trace.
type profile struct {
	client  *client
	handler string
	seconds int
	ctx     context.Context

	done chan struct{} // closed when data or err is set
	data []byte
	err  *Error

	requestSent     chan struct{} // closed when the request has been sent
	requestSentOnce sync.Once

	mu        sync.Mutex
	dialStart time.Time
	roundTrip time.Duration
}

// startProfile requests a profile of the given length from a pprof handler (its name, such as profile) in a goroutine and returns at once. If the
// service's WriteTimeout does not allow that length, it requests fallbackSeconds, unless that is 0.
func startProfile(ctx context.Context, c *client, handler string, seconds, fallbackSeconds int) *profile {
	p := &profile{client: c, handler: handler, seconds: seconds, ctx: ctx, done: make(chan struct{}), requestSent: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.data, p.err = p.fetch()
		// A refusal comes at once, but on a busy machine after the trace has begun. The trace does not wait for it.
		if p.err != nil && p.err.Kind == TooLong && fallbackSeconds > 0 {
			p.seconds = fallbackSeconds
			p.data, p.err = p.fetch()
		}
	}()
	return p
}

// fetch requests the profile and returns it when it is complete, gzipped as the service sent it. In addition it stores the time
// of connecting (roundTrip) and closes requestSent when the request is sent.
func (p *profile) fetch() ([]byte, *Error) {
	ctx := httptrace.WithClientTrace(p.ctx, &httptrace.ClientTrace{
		ConnectStart: func(string, string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.dialStart = time.Now()
		},
		ConnectDone: func(_, _ string, err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if err == nil {
				p.roundTrip = time.Since(p.dialStart)
			}
		},
		WroteRequest: func(httptrace.WroteRequestInfo) { p.requestSentOnce.Do(func() { close(p.requestSent) }) },
	})
	op := "recording the profile at"
	u := p.client.endpoint.handlerURL(p.handler, p.seconds)
	redactedURL := Redact(u)
	resp, err := p.client.get(ctx, u)
	if err != nil {
		return nil, p.client.describeRequest(p.ctx, op, redactedURL, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, p.client.statusError(op, resp, p.seconds)
	}
	r, err := decodedBody(resp)
	if err != nil {
		return nil, &Error{Kind: NotATrace, Op: op, URL: redactedURL, Text: p.client.secrets.quotable(err.Error(), 200)}
	}
	data, err := wire.ReadAll(r, maxProfile)
	if errors.Is(err, wire.ErrLarge) {
		return nil, &Error{Kind: NotATrace, Op: op, URL: redactedURL, Text: fmt.Sprintf("it is larger than %d MiB", maxProfile>>20)}
	}
	if err != nil {
		e := p.client.describe(p.ctx, op, redactedURL, err)
		if e.Kind == Unreachable {
			e.Kind, e.Text, e.Remedy = Cut, "it was cut", ""
		}
		return nil, e
	}
	// Profiles are gzipped since Go 1.9. An encoding of the body has been undone above.
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return nil, &Error{Kind: NotATrace, Op: op, URL: redactedURL, Text: "the answer is not a profile"}
	}
	return data, nil
}

// Bounds on the time between the profile's request and the trace's request. That time is four round trips, for the request to
// arrive and its handler to run. The profile lasts a second longer than the trace, so with the upper bound it still covers
// the trace's end.
const (
	minLead = 50 * time.Millisecond
	maxLead = 700 * time.Millisecond
)

// waitUntilRunning waits until the profile probably runs, four round trips after its request was sent, or has failed.
func (p *profile) waitUntilRunning() {
	select {
	case <-p.requestSent:
	case <-p.done:
		return
	}
	p.mu.Lock()
	lead := min(max(4*p.roundTrip, minLead), maxLead)
	p.mu.Unlock()
	t := time.NewTimer(lead)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.done:
	}
}

// wait blocks until the profile's end and returns the profile, gzipped; nil if it failed or p is nil.
func (p *profile) wait() []byte {
	if p == nil {
		return nil
	}
	<-p.done
	return p.data
}

// failure returns the profile's error without waiting; nil if it has not failed yet or p is nil.
func (p *profile) failure() *Error {
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// isRequestSent reports whether the request for the profile was sent by now. If not, the request for the trace would fail, too.
func (p *profile) isRequestSent() bool {
	select {
	case <-p.requestSent:
		return true
	default:
		return false
	}
}

// warning returns the warning about a profile whose failure is not nil.
func (p *profile) warning() bundle.Warning {
	if p.handler == "allocs" {
		return bundle.Warning{Code: WarnAllocs, Text: "no allocation profile: " + p.err.Error()}
	}
	if p.err.Kind == Status && p.err.isProfilerBusy {
		return bundle.Warning{Code: WarnCPU, Text: "no CPU profile: another program is taking one of this process; the trace has its samples as long as it runs"}
	}
	return bundle.Warning{Code: WarnCPU, Text: "no CPU profile, so the trace may lack CPU samples: " + p.err.Error()}
}
