package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
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
