package record

import (
	"maps"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// An Endpoint is the URL of a service's profiling handlers, without credentials.
type Endpoint struct {
	base  url.URL // no user, no fragment; the path ends before "/trace"
	query url.Values
	// alternativePath is a second candidate for the handlers' directory if the user's path may be a
	// prefix of the service or the directory itself; else empty.
	alternativePath string
	// userPath is the path as the user wrote it, "" if there was none.
	userPath string
}

// A Login is a user name and password from a URL.
type Login struct {
	User, Password string
}

const pprofPath = "/debug/pprof"

// pprofHandlers are the handlers of net/http/pprof. If a URL names one of them, the trace handler is
// in the same directory.
var pprofHandlers = map[string]bool{
	"trace": true, "profile": true, "cmdline": true, "symbol": true, "allocs": true, "block": true, "goroutine": true,
	"goroutineleak": true, "heap": true, "mutex": true, "threadcreate": true,
}

// ParseEndpoint parses the address of a service as users type it: host:port, :port, a base URL,
// .../debug/pprof, or the full URL of the trace handler or of another handler in its directory, under
// any path. The default scheme is http. A user and password in the URL are returned separately; nil if
// there are none. Query parameters are kept, except those that this package sets.
//
// Errors are of kind [Usage] and do not repeat credentials.
func ParseEndpoint(s string) (Endpoint, *Login, error) {
	usageError := func(text string) (Endpoint, *Login, error) {
		return Endpoint{}, nil, &Error{Kind: Usage, Op: "reading the address", URL: RedactString(s), Text: text}
	}
	raw := strings.TrimSpace(s)
	if raw == "" {
		return usageError("it is empty: give a URL such as http://localhost:6060")
	}
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		scheme, rest = "http", strings.TrimPrefix(raw, "//")
	}
	scheme = strings.ToLower(scheme)
	if scheme != "http" && scheme != "https" {
		return usageError("only the schemes http:// and https:// are supported")
	}
	// An @ after the authority usually comes from a password with a /, ? or #. url.Parse would take the user for the
	// host, and messages about that host would show a part of the password.
	authorityEnd := strings.IndexAny(rest, "/?#")
	if authorityEnd >= 0 && strings.Contains(rest[authorityEnd:], "@") {
		return usageError("there is an @ after the host: in a user name or password, write / ? # @ : as %2F %3F %23 %40 %3A; in a path or query, write @ as %40")
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil {
		// The parser's error quotes its input.
		return usageError("it is not a valid URL (check the port, brackets around an IPv6 address, and %-escapes)")
	}
	if u.Fragment != "" {
		return usageError("it has a part after #, which never reaches a server: leave it out, or write # as %23")
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		if port == "" {
			return usageError("it has no host: give a URL such as http://localhost:6060")
		}
		host = "localhost" // ":6060", as net/http listens
	}
	if strings.Contains(host, ":") && !strings.Contains(u.Host, "[") {
		return usageError("write an IPv6 address in brackets, as in http://[::1]:6060")
	}
	if port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return usageError("its port is not a number from 1 to 65535")
		}
		u.Host = net.JoinHostPort(host, port)
	} else {
		u.Host = strings.TrimSuffix(u.Host, ":")
	}
	var login *Login
	if u.User != nil {
		password, _ := u.User.Password()
		login = &Login{User: u.User.Username(), Password: password}
		u.User = nil
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return usageError("its query is not valid (check the %-escapes)")
	}
	for _, parameter := range []string{"seconds", "debug", "gc"} {
		query.Del(parameter)
	}
	u.RawQuery, u.ForceQuery = "", false
	endpoint := Endpoint{base: *u, query: query}
	endpoint.setPath()
	return endpoint, login, nil
}

// setPath replaces the user's path in e.base by the directory of pprof's handlers. If the path may be a prefix or that directory itself, it sets
// alternativePath to the second.
func (e *Endpoint) setPath() {
	path := strings.TrimRight(e.base.Path, "/")
	dir, last := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, last = path[:i], path[i+1:]
	}
	if path != "" {
		e.userPath = e.base.Path
	}
	var base string
	switch {
	case strings.HasSuffix(path, pprofPath):
		base = path
	case strings.HasSuffix(dir, pprofPath) && pprofHandlers[last], last == "trace" || last == "profile":
		base = dir
	case path == "":
		base = pprofPath
	default:
		// http://host/service is most likely a route prefix, but may be the handlers' directory itself.
		base, e.alternativePath = path+pprofPath, path
	}
	e.base.Path, e.base.RawPath = base, ""
}

// handlerURL returns the URL of one handler, without the parameter seconds if that is 0.
func (e Endpoint) handlerURL(handler string, seconds int) *url.URL {
	u := e.base
	u.Path += "/" + handler
	q := url.Values{}
	maps.Copy(q, e.query)
	if seconds > 0 {
		q.Set("seconds", strconv.Itoa(seconds))
	}
	u.RawQuery = q.Encode()
	return &u
}

// TraceURL returns the URL of a trace of the given length. Its query may have secrets: see [Redact].
func (e Endpoint) TraceURL(seconds int) *url.URL { return e.handlerURL("trace", seconds) }

// String returns the trace's URL without secrets, for messages and files.
func (e Endpoint) String() string { return Redact(e.handlerURL("trace", 0)) }

// Host returns the host and, if the URL has one, the port.
func (e Endpoint) Host() string { return e.base.Host }
