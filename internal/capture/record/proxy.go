package record

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// parseProxy parses the address of a proxy: http (if it has no scheme), https, socks5 or socks5h. No error quotes the address,
// which may have a password.
func parseProxy(s string) (*url.URL, error) {
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("the proxy is not a valid URL such as http://proxy:3128 (special characters in a password as %XX)")
	}
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
		return u, nil
	}
	return nil, fmt.Errorf("the proxy's scheme %q is not supported: use http, https, socks5 or socks5h", cleanLine(u.Scheme, 20))
}

// checkProxyAnswer returns an error for a proxy that refuses to connect, because the error of net/http
// has the status text only.
func (c *client) checkProxyAnswer(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	e := &Error{Kind: Proxy, Text: fmt.Sprintf("the proxy %s answered %s", Redact(proxy), c.quotableStatus(resp)),
		Remedy: "check that it may reach that host, or go without it with --proxy none"}
	if resp.StatusCode == http.StatusProxyAuthRequired {
		e.Kind, e.Remedy = Unauthorized, "put user and password into the proxy's URL"
	}
	return e
}
