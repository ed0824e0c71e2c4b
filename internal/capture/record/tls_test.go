package record

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// A pki is an authority with certificates of a server and of a client.
type pki struct {
	dir             string
	caFile          string
	cert, key       string // files of the client's
	ca              *x509.Certificate
	caKey           *ecdsa.PrivateKey
	serverPair      tls.Certificate
	expired, wrong  tls.Certificate
	pool            *x509.CertPool
	strangerCA      string // file of an authority that signed nothing here
	foreignC, foreK string // client certificate of that authority
}

func newPKI(t testing.TB) *pki {
	t.Helper()
	p := &pki{dir: t.TempDir()}
	p.ca, p.caKey = authority(t, "test authority")
	p.pool = x509.NewCertPool()
	p.pool.AddCert(p.ca)
	p.caFile = p.write(t, "ca.pem", "CERTIFICATE", p.ca.Raw)
	p.serverPair, _, _ = p.issue(t, "server", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} }, p.ca, p.caKey)
	p.expired, _, _ = p.issue(t, "expired", func(c *x509.Certificate) {
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		c.NotAfter = time.Now().Add(-time.Hour)
	}, p.ca, p.caKey)
	p.wrong, _, _ = p.issue(t, "wrong", func(c *x509.Certificate) { c.DNSNames = []string{"other.example"} }, p.ca, p.caKey)
	_, p.cert, p.key = p.issue(t, "client", nil, p.ca, p.caKey)
	stranger, otherKey := authority(t, "stranger")
	p.strangerCA = p.write(t, "stranger.pem", "CERTIFICATE", stranger.Raw)
	_, p.foreignC, p.foreK = p.issue(t, "foreign", nil, stranger, otherKey)
	return p
}

func (p *pki) write(t testing.TB, name, kind string, der []byte) string {
	t.Helper()
	name = filepath.Join(p.dir, name)
	must.Do(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return name
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	return must.Have(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

func authority(t testing.TB, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key := newKey(t)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der := must.Have(x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key))(t)
	parsed := must.Have(x509.ParseCertificate(der))(t)
	return parsed, key
}

func (p *pki) issue(t testing.TB, name string, change func(*x509.Certificate), ca *x509.Certificate, caKey *ecdsa.PrivateKey) (pair tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key := newKey(t)
	c := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-2 * time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if change != nil {
		change(c)
	}
	der := must.Have(x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, caKey))(t)
	keyDER := must.Have(x509.MarshalECPrivateKey(key))(t)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		p.write(t, name+".pem", "CERTIFICATE", der), p.write(t, name+".key", "EC PRIVATE KEY", keyDER)
}

// server starts an HTTPS server, over HTTP/2, that may require a client certificate.
func (p *pki) server(t testing.TB, h http.Handler, clientCert bool, pair ...tls.Certificate) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // failed handshakes are the point
	s.TLS = &tls.Config{Certificates: append(pair, p.serverPair)[:1], ClientCAs: p.pool}
	if clientCert {
		s.TLS.ClientAuth = tls.RequireAndVerifyClientCert
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func TestTLS(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	plain := p.server(t, imitation(), false)
	mutual := p.server(t, imitation(), true)
	expired := p.server(t, imitation(), false, p.expired)
	wrong := p.server(t, imitation(), false, p.wrong)
	clear := serveHandler(t, imitation())
	for _, c := range []struct {
		name   string
		target string
		files  TLSFiles
		kind   Kind // empty: works
		want   string
	}{
		{"own authority", plain.URL, TLSFiles{CACert: p.caFile}, "", ""},
		{"system's authorities", plain.URL, TLSFiles{}, TLS, "--cacert"},
		{"another authority", plain.URL, TLSFiles{CACert: p.strangerCA}, TLS, "signed by an authority that is not trusted here"},
		{"insecure", plain.URL, TLSFiles{Insecure: true}, "", ""},
		{"client certificate", mutual.URL, TLSFiles{CACert: p.caFile, Cert: p.cert, Key: p.key}, "", ""},
		{"no client certificate", mutual.URL, TLSFiles{CACert: p.caFile}, TLS, "give one with --cert and --key"},
		{"foreign client certificate", mutual.URL, TLSFiles{CACert: p.caFile, Cert: p.foreignC, Key: p.foreK}, TLS, "check the client certificate"},
		{"expired", expired.URL, TLSFiles{CACert: p.caFile}, TLS, "expired"},
		{"wrong name", wrong.URL, TLSFiles{CACert: p.caFile}, TLS, "--server-name"},
		{"server name", wrong.URL, TLSFiles{CACert: p.caFile, ServerName: "other.example"}, "", ""},
		{"http to a TLS port", "http://" + serverAddr(plain), TLSFiles{}, TLS, "use https://"},
		{"https to a plain port", "https://" + serverAddr(clear), TLSFiles{}, TLS, "use http://"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			opt := quickOptions()
			opt.TLS = c.files
			opt.NoCPU = false
			data, r, err := record(t, c.target, opt)
			if c.kind != "" {
				wantKind(t, err, c.kind, c.want)
				return
			}
			check.True(t, err == nil && bytes.Equal(data, cannedTrace()), "%d bytes, %v", len(data), err)
			check.Equal(t, hasWarning(r, WarnInsecure), c.files.Insecure, "warnings %v", r.Warnings)
		})
	}
}

// Over HTTP/2 a cut is a reset stream, not a closed connection.
func TestHTTP2Cut(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	var proto atomic.Value
	inner := imitation()
	s := p.server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proto.Store(r.Proto)
		if r.URL.Path != "/debug/pprof/trace" {
			inner.ServeHTTP(w, r)
			return
		}
		w.Write(cannedTrace()[:200])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}), false)
	opt := quickOptions()
	opt.TLS.CACert = p.caFile
	data, r, err := record(t, s.URL, opt)
	wantKind(t, err, Cut, "the service still answers")
	check.True(t, len(data) == 200 && r.Partial && proto.Load() == "HTTP/2.0", "%d bytes over %v, %+v", len(data), proto.Load(), r)
}
