package record

import (
	"net/url"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

func TestParseEndpoint(t *testing.T) {
	for _, c := range []struct{ in, trace, alternativePath string }{
		{"svc:6060", "http://svc:6060/debug/pprof/trace?seconds=3", ""},
		{" svc ", "http://svc/debug/pprof/trace?seconds=3", ""},
		{":6060", "http://localhost:6060/debug/pprof/trace?seconds=3", ""},
		{"[::1]:6060", "http://[::1]:6060/debug/pprof/trace?seconds=3", ""},
		{"HTTPS://svc", "https://svc/debug/pprof/trace?seconds=3", ""},
		{"//svc:1/", "http://svc:1/debug/pprof/trace?seconds=3", ""},
		{"http://svc:/", "http://svc/debug/pprof/trace?seconds=3", ""},
		{"http://svc:1/debug/pprof", "http://svc:1/debug/pprof/trace?seconds=3", ""},
		{"http://svc:1/debug/pprof/", "http://svc:1/debug/pprof/trace?seconds=3", ""},
		{"svc:1/debug/pprof/trace", "http://svc:1/debug/pprof/trace?seconds=3", ""},
		{"svc:1/debug/pprof/trace?seconds=5&debug=1", "http://svc:1/debug/pprof/trace?seconds=3", ""},
		{"svc:1/debug/pprof/profile", "http://svc:1/debug/pprof/trace?seconds=3", ""},
		{"svc:1/debug/pprof/goroutine?debug=2", "http://svc:1/debug/pprof/trace?seconds=3", ""},
		{"svc:1/a/b/debug/pprof/heap", "http://svc:1/a/b/debug/pprof/trace?seconds=3", ""},
		{"svc:1/my/trace", "http://svc:1/my/trace?seconds=3", ""},
		{"svc:1/?tenant=a%26b&x=1", "http://svc:1/debug/pprof/trace?seconds=3&tenant=a%26b&x=1", ""},
		{"svc:1/prom", "http://svc:1/prom/debug/pprof/trace?seconds=3", "/prom"},
		{"svc:1/heap", "http://svc:1/heap/debug/pprof/trace?seconds=3", "/heap"},
		{"svc:1/a%20b/", "http://svc:1/a%20b/debug/pprof/trace?seconds=3", "/a b"},
	} {
		e, login, err := ParseEndpoint(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		if got := e.TraceURL(3).String(); got != c.trace || e.alternativePath != c.alternativePath || login != nil {
			t.Errorf("%q: %s, other %q, login %v; want %s, other %q", c.in, got, e.alternativePath, login, c.trace, c.alternativePath)
		}
	}
}

func TestParseEndpointReturnsTheLogin(t *testing.T) {
	e, login, err := ParseEndpoint("https://jo%40x:p%2Fw%3F%23@svc:1/debug/pprof?token=t0ken")
	must.Do(t, err)
	if *login != (Login{"jo@x", "p/w?#"}) {
		t.Errorf("login %q", *login)
	}
	check.Equal(t, e.String(), "https://svc:1/debug/pprof/trace?token=xxxxx", "written as")
	check.Equal(t, e.TraceURL(1).String(), "https://svc:1/debug/pprof/trace?seconds=1&token=t0ken", "asked as")
}

func TestParseEndpointErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "it is empty",
		"ftp://jo:s3cret@svc":         "only the schemes",
		"http://":                     "has no host",
		"::1":                         "not a valid URL",
		"http://svc:99999":            "from 1 to 65535",
		"http://svc:0":                "from 1 to 65535",
		"http://jo:s3/cret@svc:1":     "%2F",
		"http://jo:s3?cret@svc:1":     "%2F",
		"http://jo:1#s3cret@svc:1":    "%2F",
		"http://jo:s3%cret@svc:1":     "not a valid URL",
		"http://jo:s3cret@svc:1/#s3c": "after #",
		"http://jo:s3cret@svc:port":   "not a valid URL",
		"http://jo:s3cret@svc/?a=%s3": "query is not valid",
		"http://jo:s3cret@svc/?a;b=1": "query is not valid",
		"jo:s3://cret@svc:1":          "only the schemes",
		"http://jo:s3cret@":           "has no host",
	} {
		_, _, err := ParseEndpoint(in)
		wantKind(t, err, Usage, want)
		if s := err.Error(); strings.Contains(s, "s3") || strings.Contains(s, "cret") {
			t.Errorf("%q: the password is in %q", in, s)
		}
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"http://svc/x?seconds=5&debug=1&gc=1":   "http://svc/x?seconds=5&debug=1&gc=1",
		"http://svc/x?seconds=tok&key=1&s3cret": "http://svc/x?seconds=xxxxx&key=xxxxx&xxxxx",
		"http://jo:p@svc/":                      "http://xxxxx@svc/",
		"http://tok@svc/#frag":                  "http://xxxxx@svc/",
		"mailto:jo":                             "mailto:xxxxx",
	} {
		u := must.Have(url.Parse(in))(t)
		check.Equal(t, Redact(u), want, "%s", in)
	}
	check.Equal(t, Redact(nil), "", "nil")
}

func TestForeignText(t *testing.T) {
	s := newSecrets(map[string][]string{"X-Key": {"k3y-value"}}, &Login{"jo", "p q"}, nil, nil)
	for in, want := range map[string]string{
		"nothing here":          "nothing here",
		"your k3y-value is bad": "your xxxxx is bad",
		"hello jo":              "", // too short to mask without saying where it was
		"a\r\n\tb \x1b[1m \u202e \xff c " + strings.Repeat("x", 100): "a b \\x1b[1m \\u202e …",
	} {
		check.Equal(t, s.quotable(in, 20), want, "%q", in)
	}
}

func TestFileNames(t *testing.T) {
	got, err := FileNames("dir/x.trace", []string{"svc-1:6060", "https://jo:pw@svc-2", "[::1]:80", "SVC-1:6060"})
	want := "dir/x-svc-1_6060.trace dir/x-svc-2.trace dir/x-___1__80.trace dir/x-SVC-1_6060-2.trace"
	check.True(t, err == nil && strings.Join(got, " ") == want, "%q, %v; want %s", got, err, want)
	if _, err := FileNames("x.trace", []string{"svc", ""}); err == nil {
		t.Error("a bad target was accepted")
	}
}

// FuzzEndpoint: no input panics, and no error or text contains a user and password in front of any
// input.
func FuzzEndpoint(f *testing.F) {
	for _, s := range []string{"svc:6060", "svc/a?b=c#d", "[::1]:1/debug/pprof/trace?seconds=1", "%zz", "a@b:1/", ":x", "/", "?", "//"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		const secret = "Zq7secretZq7"
		if strings.Contains(rest, "Zq7") {
			return
		}
		for _, in := range []string{rest, "http://jo:" + secret + "@" + rest, "http://" + secret + "@" + rest, "jo:" + secret + "@" + rest,
			"http://jo:/" + secret + "@" + rest, "http://jo:1#" + secret + "@" + rest, "http://jo:%" + secret + "@" + rest} {
			e, login, err := ParseEndpoint(in)
			text := RedactString(in)
			if err != nil {
				text += err.Error()
			} else {
				text += e.String() + e.Host()
				must.True(t, e.TraceURL(2).Query().Get("seconds") == "2", "%q: asked as %s", in, e.TraceURL(2))
				if reparsed, _, err := ParseEndpoint(e.TraceURL(2).String()); err != nil || reparsed.TraceURL(1).String() != e.TraceURL(1).String() {
					t.Fatalf("%q: %s is read back as %s, %v", in, e.TraceURL(1), reparsed.TraceURL(1), err)
				}
			}
			must.False(t, strings.Contains(text, secret), "%q: the secret is in %q (login %v)", in, text, login)
			must.False(t, strings.ContainsAny(text, "\n\r\x1b"), "%q: control characters in %q", in, text)
		}
	})
}
