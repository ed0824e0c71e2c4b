package record

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// headerLen is the length of a trace's header: "go 1.26 trace" and zero bytes.
const headerLen = 16

// checkHeader reads the trace's header, unpacks the body if necessary, and returns an error if the
// answer is not a trace.
func (s *Stream) checkHeader() *Error {
	r, err := decodedBody(s.resp)
	if err != nil {
		return s.notATrace(s.client.secrets.quotable(err.Error(), 200), "turn off compression of this path in the service or in the proxy before it")
	}
	buf := bufio.NewReaderSize(r, 128<<10)
	head, err := buf.Peek(headerLen)
	if bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
		z, zerr := gzip.NewReader(buf)
		if zerr != nil {
			return s.notATrace("its gzip header is damaged", "")
		}
		buf = bufio.NewReaderSize(z, 128<<10)
		head, err = buf.Peek(headerLen)
	}
	if version, ok := traceVersion(head); ok {
		if version < 22 {
			return &Error{Kind: OldTrace, Op: opTrace, URL: s.traceURL, Text: fmt.Sprintf("the service was built with Go 1.%d, whose traces have another format", version),
				Remedy: "build it with Go 1.22 or later"}
		}
		s.result.TraceVersion = "go 1." + strconv.Itoa(version)
		s.body = buf
		return nil
	}
	if err != nil && !(errors.Is(err, io.EOF) && len(head) > 0) {
		// The server died before the first bytes, or its WriteTimeout is shorter than the first second.
		elapsed := time.Since(s.result.Start)
		e := s.client.describe(s.ctx, opTrace, s.traceURL, err)
		if e.Kind == Unreachable {
			e.Kind = Cut
			e.Text = fmt.Sprintf("the answer ended after %v without a trace", elapsed.Round(10*time.Millisecond))
			e.Remedy = s.explainCut(0)
		}
		return e
	}
	buffered, _ := buf.Peek(min(buf.Buffered(), 4096))
	start := string(buffered)
	switch {
	case strings.HasPrefix(strings.ToLower(strings.TrimSpace(start)), "<"):
		text := "the answer is a web page"
		if t := s.client.secrets.quotable(title(start), 100); t != "" {
			text += fmt.Sprintf(" with the title %q", t)
		}
		remedy := "is it a login? Give credentials with --user, --token-file or --header; else check the path"
		if !s.client.isTrusted(s.resp.Request.URL) {
			text += ", to which the request was redirected"
		}
		return s.notATrace(text, remedy)
	default:
		return s.notATrace(fmt.Sprintf("the answer begins with %q", s.client.secrets.quotable(start[:min(len(start), 60)], 60)), "check the path: it must lead to pprof.Trace of net/http/pprof")
	}
}

// notATrace returns the error for an answer that is not an execution trace, with the reason and advice. If a redirect led to
// another host, the error names that one.
func (s *Stream) notATrace(text, remedy string) *Error {
	e := &Error{Kind: NotATrace, Op: opTrace, URL: s.traceURL, Text: "not an execution trace: " + text, Remedy: remedy}
	if u := s.resp.Request.URL; u.Host != s.client.endpoint.base.Host {
		e.URL = s.client.foreignAddress(u)
	}
	return e
}

// traceVersion reads the minor Go version (22 of Go 1.22) from a trace's header; false if head does not begin with one. Source:
// internal/trace/tracev2, "go 1.%d trace\0\0\0".
func traceVersion(head []byte) (int, bool) {
	if len(head) < headerLen {
		return 0, false
	}
	rest, ok := strings.CutPrefix(string(head[:headerLen]), "go 1.")
	number, tail, found := strings.Cut(rest, " trace")
	if !ok || !found || strings.Trim(tail, "\x00") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(number)
	return n, err == nil && n > 0
}

// decodedBody returns the answer's body without a content encoding that the server applied without a request for it. Any encoding but gzip is an
// error.
func decodedBody(resp *http.Response) (io.Reader, error) {
	switch encoding := strings.ToLower(resp.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		return &lazyGzip{source: resp.Body}, nil
	default:
		return nil, fmt.Errorf("the body is encoded as %q, which was not asked for", cleanLine(encoding, 40))
	}
}

// lazyGzip reads the gzip header at the first Read, because reading it earlier would block.
type lazyGzip struct {
	source io.Reader
	reader *gzip.Reader
}

// Read decompresses the source. It reads the gzip header at the first call, not before.
func (g *lazyGzip) Read(p []byte) (int, error) {
	if g.reader == nil {
		z, err := gzip.NewReader(g.source)
		if err != nil {
			return 0, err
		}
		g.reader = z
	}
	return g.reader.Read(p)
}

var titlePattern = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title`)

// title returns the text of a web page's title element, "" without one.
func title(html string) string {
	if found := titlePattern.FindStringSubmatch(html); found != nil {
		return found[1]
	}
	return ""
}
