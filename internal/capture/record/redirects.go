package record

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/whylate/whylate/internal/capture/wire"
)

// origin returns scheme, host name and port in comparable form.
func origin(u *url.URL) (scheme, host, port string) {
	return u.Scheme, strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), wire.Port(u)
}

// isTrusted reports whether credentials may be sent to u: to the endpoint's own origin, and from http
// on the default port to https on the default port of the same host, the usual upgrade.
func (c *client) isTrusted(u *url.URL) bool {
	s1, h1, p1 := origin(&c.endpoint.base)
	s2, h2, p2 := origin(u)
	return h1 == h2 && (s1 == s2 && p1 == p2 || s1 == "http" && p1 == "80" && s2 == "https" && p2 == "443")
}

const maxRedirects = 5

// checkRedirect is the http.Client's CheckRedirect. Without redirects (NoRedirects) the redirecting answer itself is the
// result; more than maxRedirects are an error. Credentials in the address of a redirect are removed.
func (c *client) checkRedirect(req *http.Request, via []*http.Request) error {
	if c.options.NoRedirects {
		return http.ErrUseLastResponse
	}
	if len(via) > maxRedirects {
		return &Error{Kind: Redirect, Text: fmt.Sprintf("it redirects more than %d times, the last time to %s", maxRedirects, c.foreignAddress(req.URL)),
			Remedy: "often that is a login: give credentials, or the address that it ends at"}
	}
	// A redirect's target may contain credentials: neither send nor show them.
	req.URL.User = nil
	return nil
}

// foreignAddress returns a redacted URL that a server has made and that may repeat our secrets in its
// path.
func (c *client) foreignAddress(u *url.URL) string { return c.secrets.quotable(Redact(u), 300) }
