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

// What an answer is: a trace, packed or not, or something else.

// headerLen is the length of a trace's header: "go 1.26 trace" and zero bytes.
const headerLen = 16

// checkHeader makes sure that the body is a trace.
func (s *Stream) checkHeader() *Error {
	r, err := decoded(s.resp)
	if err != nil {
		return s.notATrace(s.c.secrets.foreign(err.Error(), 200), "turn off compression of this path in the service or in the proxy before it")
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
			return &Error{Kind: OldTrace, Op: opTrace, URL: s.trace, Text: fmt.Sprintf("the service was built with Go 1.%d, whose traces have another format", version),
				Do: "build it with Go 1.22 or later"}
		}
		s.res.TraceVersion = "go 1." + strconv.Itoa(version)
		s.body = buf
		return nil
	}
	if err != nil && !(errors.Is(err, io.EOF) && len(head) > 0) {
		// A server that dies before the first bytes, or whose WriteTimeout is shorter than the first second.
		elapsed := time.Since(s.res.Start)
		e := s.c.describe(s.ctx, opTrace, s.trace, err)
		if e.Kind == Unreachable {
			e.Kind = Cut
			e.Text = fmt.Sprintf("the answer ended after %v without a trace", elapsed.Round(10*time.Millisecond))
			e.Do = s.whyCut(0)
		}
		return e
	}
	rest, _ := buf.Peek(min(buf.Buffered(), 4096))
	text := string(rest)
	switch {
	case strings.HasPrefix(strings.ToLower(strings.TrimSpace(text)), "<"):
		what := "the answer is a web page"
		if t := s.c.secrets.foreign(title(text), 100); t != "" {
			what += fmt.Sprintf(" with the title %q", t)
		}
		do := "is it a login? Give credentials with --user, --token-file or --header; else check the path"
		if !s.c.trusted(s.resp.Request.URL) {
			what += ", to which the request was redirected"
		}
		return s.notATrace(what, do)
	default:
		return s.notATrace(fmt.Sprintf("the answer begins with %q", s.c.secrets.foreign(text[:min(len(text), 60)], 60)), "check the path: it must lead to pprof.Trace of net/http/pprof")
	}
}

func (s *Stream) notATrace(text, do string) *Error {
	e := &Error{Kind: NotATrace, Op: opTrace, URL: s.trace, Text: "not an execution trace: " + text, Do: do}
	if u := s.resp.Request.URL; u.Host != s.c.end.base.Host {
		e.URL = s.c.address(u)
	}
	return e
}

// traceVersion reads the minor Go version from a trace's header. Source: internal/trace/tracev2, "go 1.%d trace\0\0\0".
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

// decoded undoes a content encoding that the server applied although it was asked not to.
func decoded(resp *http.Response) (io.Reader, error) {
	switch encoding := strings.ToLower(resp.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		return &lazyGzip{src: resp.Body}, nil
	default:
		return nil, fmt.Errorf("the body is encoded as %q, which was not asked for", clean(encoding, 40))
	}
}

// lazyGzip reads the gzip header at the first Read, not when it is made.
type lazyGzip struct {
	src io.Reader
	z   *gzip.Reader
}

func (g *lazyGzip) Read(p []byte) (int, error) {
	if g.z == nil {
		z, err := gzip.NewReader(g.src)
		if err != nil {
			return 0, err
		}
		g.z = z
	}
	return g.z.Read(p)
}

var titleOf = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title`)

// title finds a page's title.
func title(html string) string {
	if found := titleOf.FindStringSubmatch(html); found != nil {
		return found[1]
	}
	return ""
}
