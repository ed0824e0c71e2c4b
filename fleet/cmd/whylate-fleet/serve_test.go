package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// writeCertificate writes a certificate with a serial number, and its key.
func writeCertificate(t *testing.T, cert, key string, number int64) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Do(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(number), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
	must.Do(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	must.Do(t, err)
	for name, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		must.Do(t, os.WriteFile(name, pem.EncodeToMemory(b), 0o600))
	}
}

// TestCertificate: the next connection uses a new certificate, and does not use a damaged one.
func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	if _, err := newTLSConfig(cert, key); err == nil {
		t.Error("no certificate is no error")
	}
	writeCertificate(t, cert, key, 1)
	conf, err := newTLSConfig(cert, key)
	must.Do(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	must.Do(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = c.(*tls.Conn).Handshake(); _ = c.Close() }()
		}
	}()
	number := func() int64 {
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true}) // only the serial number matters here
		must.Do(t, err)
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	check.Equal(t, number(), 1, "certificate")
	writeCertificate(t, cert, key, 2)
	if n := number(); n != 2 {
		t.Errorf("certificate %d after a new one", n)
	}
	must.Do(t, os.WriteFile(cert, []byte("half"), 0o600))
	if n := number(); n != 2 {
		t.Errorf("certificate %d after a damaged one", n)
	}
}

// TestEmptyStore: a fleet with recordings and an empty store does not start, prints what to do, and keeps the recordings.
func TestEmptyStore(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "raw", strings.Repeat("a", 32))
	must.Do(t, os.Mkdir(filepath.Dir(name), 0o700))
	for _, file := range []string{name, filepath.Join(dir, "fleet.db")} {
		must.Do(t, os.WriteFile(file, nil, 0o600))
	}
	must.Do(t, os.Chtimes(name, time.Time{}, time.Now().Add(-48*time.Hour)))
	for _, target := range []string{"all", "ingest", "work", "query"} {
		c, _, err := parseConfig([]string{"-dir", dir, "-listen", "127.0.0.1:0", "-target", target})
		must.Do(t, err)
		if err := serve(t.Context(), c, func(string, *store.Store) error { return errors.New("it serves") }); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "raw")) || !strings.Contains(err.Error(), "Put their store back") {
			t.Errorf("%s: %v", target, err)
		}
	}
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
	}
}

// TestListen: an address other than loopback needs TLS or -plain.
func TestListen(t *testing.T) {
	c, _, err := parseConfig([]string{"-dir", t.TempDir(), "-listen", "0.0.0.0:0"})
	must.Do(t, err)
	if err := serve(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "-tls-cert") {
		t.Error(err)
	}
}

// TestRoles: each target serves its part of the paths, over TLS as well, and answers while it drains.
func TestRoles(t *testing.T) {
	scraped, certDir := filepath.Join(t.TempDir(), "scrape.yaml"), t.TempDir()
	must.Do(t, os.WriteFile(scraped, []byte("scrape_configs: [{job_name: x, static_configs: [{targets: []}]}]"), 0o600))
	cert, key, secrets := filepath.Join(certDir, "cert"), filepath.Join(certDir, "key"), filepath.Join(certDir, "secrets")
	writeCertificate(t, cert, key, 1)
	must.Do(t, os.WriteFile(secrets, []byte(strings.Repeat("QUJD", 8)), 0o600))
	for _, c := range []struct {
		flags  string
		scheme string
		want   map[string]int // status by method and path
	}{
		{"-target=all -otlp=http://127.0.0.1:1 -pyroscope=http://127.0.0.1:1 -webhook=http://127.0.0.1:1 -webhook-secrets=" + secrets, "http://", map[string]int{"POST /v1/recordings": 401, "GET /": 200, "GET /metrics": 200, "GET /readyz": 200}},
		{"-target=ingest -log=json", "http://", map[string]int{"POST /v1/recordings": 401, "GET /": 404, "GET /metrics": 200}},
		{"-target=query -tls-cert=" + cert + " -tls-key=" + key, "https://", map[string]int{"POST /v1/recordings": 404, "GET /": 200}},
		{"-target=work", "http://", map[string]int{"POST /v1/recordings": 404, "GET /": 404, "GET /healthz": 200}},
		{"-listen=0.0.0.0:0 -target=query -plain", "http://", map[string]int{"GET /": 401, "GET /readyz": 200}},
		{"-target=scrape -scrape=" + scraped, "http://", map[string]int{"POST /v1/recordings": 404, "GET /": 404}},
	} {
		cfg, _, err := parseConfig(append([]string{"-dir", t.TempDir(), "-listen=127.0.0.1:0", "-drain=50ms"}, strings.Fields(c.flags)...))
		must.Do(t, err)
		ctx, stop := context.WithCancel(t.Context())
		addresses, ended := make(chan string, 1), make(chan error, 1)
		go func() {
			ended <- serve(ctx, cfg, func(address string, _ *store.Store) error { addresses <- address; return nil })
		}()
		address := <-addresses
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		ask := func(request string) int {
			method, path, _ := strings.Cut(request, " ")
			res := must.Have(client.Do(must.Have(http.NewRequestWithContext(t.Context(), method, strings.Replace(address, "[::]", "127.0.0.1", 1)+path, nil))(t)))(t)
			_ = res.Body.Close()
			return res.StatusCode
		}
		check.True(t, strings.HasPrefix(address, c.scheme), "%s: %s", c.flags, address)
		for request, status := range c.want {
			check.Equal(t, ask(request), status, "%s: %s", c.flags, request)
		}
		stop()
		check.True(t, <-ended == nil, "%s", c.flags)
		client.CloseIdleConnections()
	}
	cfg, _, err := parseConfig([]string{"-dir", t.TempDir(), "-listen=127.0.0.1:0"})
	must.Do(t, err)
	refused := errors.New("refused")
	check.True(t, errors.Is(serve(t.Context(), cfg, func(string, *store.Store) error { return refused }), refused), "an error of ready is lost")
}
