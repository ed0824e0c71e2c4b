package record

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/whylate/whylate/internal/capture/wire"
)

// TLSFiles names files in PEM format.
type TLSFiles struct {
	CACert     string // trust the authorities in this file instead of the system's
	Cert, Key  string // client certificate and its key
	ServerName string // name expected in the server's certificate
	Insecure   bool   // do not verify the server's certificate
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
