package record

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/output/words"
)

// FlightPath is the path of a service's flight recorder (service/flight) if the URL has no path.
const FlightPath = "/debug/flight"

const opFlight = "fetching a recording from"

// maxFlightBytes bounds a recording: several times the default limit of a flight recorder.
const maxFlightBytes = 1 << 30

// SaveFlight fetches the present recording of a flight recorder and writes it to a file, or to w if the name is empty. It returns the number of bytes
// written. Only the options of the connection and MaxBytes apply; a larger recording is an error.
func SaveFlight(ctx context.Context, target string, opt Options, name string, w io.Writer) (int64, error) {
	endpoint, login, err := ParseEndpoint(target)
	if err != nil {
		return 0, err
	}
	c, err := newClient(ctx, endpoint, login, opt)
	if err != nil {
		return 0, err
	}
	defer c.transport.CloseIdleConnections()
	u := endpoint.flightURL()
	newError := func(kind Kind, text, do string) (int64, error) {
		return 0, &Error{Kind: kind, Op: opFlight, URL: c.foreignAddress(u), Text: text, Remedy: do}
	}
	resp, err := c.get(ctx, u)
	if err != nil {
		return 0, c.describeRequest(ctx, opFlight, c.foreignAddress(u), err)
	}
	defer resp.Body.Close()
	const serve = "serve a *flight.Recorder of service/flight there, or name its path in the URL"
	switch {
	case resp.StatusCode == http.StatusOK:
	case resp.StatusCode == http.StatusNotFound:
		return newError(NotFound, "there is no flight recorder", serve)
	case resp.StatusCode == http.StatusServiceUnavailable && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain"):
		return newError(Empty, "its flight recorder is empty", c.secrets.quotable(c.readErrorBody(resp), 200))
	default:
		return 0, c.statusError(opFlight, resp, 0)
	}
	head := make([]byte, bundle.MagicLen)
	n, err := io.ReadFull(resp.Body, head)
	if err != nil || !bundle.HasMagic(head[:n]) {
		return newError(NotATrace, "the answer is not a recording", serve)
	}
	limit := int64(maxFlightBytes)
	if opt.MaxBytes > 0 {
		limit = min(limit, opt.MaxBytes)
	}
	body := io.MultiReader(bytes.NewReader(head), io.LimitReader(resp.Body, limit-int64(n)+1))
	var f *atomicfile.File
	if name != "" {
		if f, err = atomicfile.Create(name); err != nil {
			return 0, writeError(name, err)
		}
		defer f.Discard()
		w = f
	}
	size, readErr, err := copyAll(w, body)
	if err != nil {
		return 0, writeError(name, err)
	}
	if readErr == nil && size > limit {
		return newError(Cut, "it is larger than "+words.Bytes(limit), "check what serves this address")
	}
	if readErr == nil && resp.ContentLength >= 0 && size != resp.ContentLength {
		readErr = io.ErrUnexpectedEOF
	}
	if readErr != nil {
		return newError(Cut, "it was cut", withoutURLs(readErr).Error())
	}
	if f != nil {
		if err := f.Commit(); err != nil {
			return 0, writeError(name, err)
		}
	}
	return size, nil
}

// MayServeFlight reports whether the target may be a flight recorder. named is true if the URL has the path of one. If the URL has no path, only
// mayServe is true, because the usual path is worth a try. Any other path belongs to the handlers of net/http/pprof, and both are false.
func MayServeFlight(target string) (named, mayServe bool) {
	endpoint, _, err := ParseEndpoint(target)
	if err != nil {
		return false, false
	}
	named = endpoint.userPath == "/flight" || strings.HasSuffix(endpoint.userPath, FlightPath)
	return named, named || endpoint.userPath == ""
}

// FlightURL returns the URL of a target's flight recorder, without secrets, for messages.
func FlightURL(target string) string {
	endpoint, _, err := ParseEndpoint(target)
	if err != nil {
		return RedactString(target)
	}
	return Redact(endpoint.flightURL())
}

// flightURL returns the URL of the flight recorder: with the user's path, else with the usual one.
func (e Endpoint) flightURL() *url.URL {
	u := e.base
	u.Path = cmp.Or(e.userPath, FlightPath)
	return &u
}
