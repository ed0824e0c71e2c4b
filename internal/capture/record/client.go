package record

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
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

// Config returns the configuration of a TLS client. It reads the files, which may be pipes and block, until ctx ends. Errors name the flag of the
// file and its defect.
func (t TLSFiles) Config(ctx context.Context) (*tls.Config, error) {
	done := make(chan struct{})
	var conf *tls.Config
	var err error
	go func() {
		defer close(done)
		conf, err = t.load()
	}()
	select {
	case <-done:
		return conf, err
	case <-ctx.Done():
		return nil, fmt.Errorf("reading the files of TLS: %w", context.Cause(ctx))
	}
}

// maxPEM bounds a file. The file with all authorities of a system has about 200 kB.
const maxPEM = 4 << 20

// readPEM reads a file of certificates or keys, of at most maxPEM bytes.
func readPEM(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := wire.ReadAll(f, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// load reads the files and returns the configuration of a TLS client. Errors name the flag of the file.
func (t TLSFiles) load() (*tls.Config, error) {
	conf := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.Insecure}
	if t.CACert != "" {
		pem, err := readPEM(t.CACert)
		if err != nil {
			return nil, fmt.Errorf("reading --cacert: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("reading --cacert: %s holds no certificate in PEM format", t.CACert)
		}
	}
	if t.Cert != "" || t.Key != "" {
		if t.Cert == "" || t.Key == "" {
			return nil, errors.New("a client certificate needs both --cert and --key")
		}
		cert, certErr := readPEM(t.Cert)
		key, keyErr := readPEM(t.Key)
		pair, err := tls.X509KeyPair(cert, key)
		err = cmp.Or(certErr, keyErr, err)
		if err != nil {
			return nil, fmt.Errorf("reading --cert and --key: %w", err)
		}
		// Present the certificate even if its authority is not among those that the server names: the server then
		// reports the wrong authority instead of a missing certificate.
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return conf, nil
}

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

// get sends a GET request and returns any answer, also one with an error's status. The caller closes the body. Cancelling the context ends the
// request.
func (c *client) get(ctx context.Context, u *url.URL) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, withoutURLs(err)
	}
	return c.http.Do(req)
}
