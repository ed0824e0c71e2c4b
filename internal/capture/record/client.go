package record

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/whylate/whylate/internal/capture/wire"
)

// A client sends requests to one endpoint. It sends credentials to the endpoint's own origin only.
type client struct {
	options        Options
	endpoint       Endpoint
	http           *http.Client
	transport      *http.Transport
	header         http.Header // includes Authorization; sent to trusted origins only
	hasCredentials bool
	secrets        secrets
	proxy          *url.URL
	certRequested  atomic.Bool // a server requested a client certificate
}

// newClient checks the options and reads the files that they name. It opens no connection.
func newClient(ctx context.Context, endpoint Endpoint, urlLogin *Login, options Options) (*client, error) {
	if err := options.setDefaults(); err != nil {
		return nil, err
	}
	usageError := func(text string, err error) (*client, error) {
		return nil, &Error{Kind: Usage, Op: "recording", URL: endpoint.String(), Text: text, Err: err}
	}
	c := &client{options: options, endpoint: endpoint, header: http.Header{}}
	for k, v := range options.Header {
		c.header[http.CanonicalHeaderKey(k)] = v
	}
	login := cmp.Or(options.Login, urlLogin)
	var credentialKinds []string
	if c.header.Get("Authorization") != "" {
		credentialKinds = append(credentialKinds, "an Authorization header")
	}
	if login != nil {
		credentialKinds = append(credentialKinds, "a user and password")
		(&http.Request{Header: c.header}).SetBasicAuth(login.User, login.Password)
	}
	if options.Token != "" {
		credentialKinds = append(credentialKinds, "a token")
		if strings.ContainsFunc(options.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return usageError("the token has a space, a line end or another invalid character: is it the right file or variable?", nil)
		}
		c.header.Set("Authorization", "Bearer "+options.Token)
	}
	if len(credentialKinds) > 1 {
		return usageError("you gave "+strings.Join(credentialKinds, " and ")+": only one can be sent", nil)
	}
	secretHeader := c.header.Clone()
	secretHeader.Del("Host") // the host's name is no secret, and messages need it
	c.hasCredentials = len(secretHeader) > 0 || len(endpoint.query) > 0

	tlsConfig, err := options.TLS.Config(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, c.describe(ctx, "recording", endpoint.String(), err)
	}
	if err != nil {
		return usageError(err.Error(), err)
	}
	presentCert := tlsConfig.GetClientCertificate
	tlsConfig.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		c.certRequested.Store(true)
		if presentCert == nil {
			return new(tls.Certificate), nil // none
		}
		return presentCert(info)
	}
	if options.TLS != (TLSFiles{}) && endpoint.base.Scheme != "https" {
		return usageError("TLS options are given, but the URL is http://: write https://", nil)
	}
	proxy := http.ProxyFromEnvironment
	switch options.Proxy {
	case "":
	case "none":
		proxy = nil
	default:
		c.proxy, err = parseProxy(options.Proxy)
		if err != nil {
			return usageError(err.Error(), nil)
		}
		proxy = http.ProxyURL(c.proxy)
	}
	if proxy != nil {
		// Look up the proxy now, because its password is a secret to mask. (The lookup fails in a CGI program; a
		// variable that is no URL counts as not set.)
		u, err := proxy(&http.Request{URL: &url.URL{Scheme: endpoint.base.Scheme, Host: endpoint.base.Host}})
		if err != nil {
			return usageError("the environment's proxy cannot be used: check HTTP_PROXY and HTTPS_PROXY, or name one with --proxy", nil)
		}
		c.proxy = u
	}
	c.secrets = newSecrets(secretHeader, login, endpoint.query, c.proxy)
	dial := options.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: options.ConnectTimeout}).DialContext
	}
	c.transport = wire.Transport(&http.Transport{
		Proxy:                  proxy,
		DialContext:            dial,
		TLSHandshakeTimeout:    options.ConnectTimeout,
		TLSClientConfig:        tlsConfig,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // decodedBody decompresses; and compression would cost the observed service CPU time
		OnProxyConnectResponse: c.checkProxyAnswer,
	})
	c.http = wire.Client(c.transport)
	c.http.Transport, c.http.CheckRedirect = (*roundTripper)(c), c.checkRedirect
	return c, nil
}

// A roundTripper adds headers and credentials to each request when it is sent. http.Client does not
// know them, so it cannot copy them to the target of a redirect.
type roundTripper client

// RoundTrip sends a copy of a request, with the user's headers only if the URL is of a trusted host: a redirect may lead to
// another one.
func (rt *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	c := (*client)(rt)
	req = req.Clone(req.Context())
	// The referring URL may have a token in its query.
	req.Header.Del("Referer")
	req.Header.Set("User-Agent", c.options.UserAgent)
	req.Header.Set("Accept-Encoding", "identity")
	if c.isTrusted(req.URL) {
		for k, v := range c.header {
			if k == "Host" {
				req.Host = v[0]
				continue
			}
			req.Header[k] = v
		}
	}
	return c.transport.RoundTrip(req)
}

// get sends a GET request and returns any answer, also one with an error's status. The caller closes the body. Cancelling the context ends the
// request.
func (c *client) get(ctx context.Context, u *url.URL) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, withoutURLs(err)
	}
	return c.http.Do(req)
}
