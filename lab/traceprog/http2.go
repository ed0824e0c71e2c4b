//lint:file-ignore SA1019 services on golang.org/x/net/http2 and h2c are what this is about, deprecated or not

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"

	"github.com/whylate/whylate/lab/traceprog/internal/rig"
)

func http2Scenarios() []rig.Scenario {
	return []rig.Scenario{
		{Name: "http2", Doc: "HTTP/2 over TLS by net/http's own copy", Run: http2Bundled},
		{Name: "http2-h2c", Doc: "HTTP/2 without TLS by net/http's own copy (Server.Protocols)", Run: http2Unencrypted},
		{Name: "http2-xnet", Doc: "HTTP/2 by golang.org/x/net/http2, over TLS and, through h2c, without", Run: http2XNet},
	}
}

func http2Bundled(e *rig.Env) error {
	srv := httptest.NewUnstartedServer(routes())
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	c := srv.Client()
	defer c.CloseIdleConnections()
	if err := wantHTTP2(c, srv.URL); err != nil {
		return err
	}
	return e.Record(func(ctx context.Context) error { return getRoutes(e, ctx, c, srv.URL, 6, time.Millisecond) })
}

func http2Unencrypted(e *rig.Env) error {
	srv := httptest.NewUnstartedServer(routes())
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	defer srv.Close()
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	c := &http.Client{Transport: &http.Transport{Protocols: p}, Timeout: 30 * time.Second}
	defer c.CloseIdleConnections()
	if err := wantHTTP2(c, srv.URL); err != nil {
		return err
	}
	return e.Record(func(ctx context.Context) error { return getRoutes(e, ctx, c, srv.URL, 6, time.Millisecond) })
}

func http2XNet(e *rig.Env) error {
	secure := httptest.NewUnstartedServer(routes())
	if err := http2.ConfigureServer(secure.Config, &http2.Server{}); err != nil {
		return fmt.Errorf("configuring x/net/http2: %w", err)
	}
	secure.TLS = secure.Config.TLSConfig
	secure.StartTLS()
	defer secure.Close()
	tlsConfig := secure.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	tlsConfig.NextProtos = []string{http2.NextProtoTLS}
	secureClient := &http.Client{Transport: &http2.Transport{TLSClientConfig: tlsConfig}, Timeout: 30 * time.Second}
	defer secureClient.CloseIdleConnections()

	clear := httptest.NewServer(h2c.NewHandler(routes(), &http2.Server{}))
	defer clear.Close()
	clearClient := &http.Client{Timeout: 30 * time.Second, Transport: &http2.Transport{
		AllowHTTP: true,
		DialTLSContext: func(ctx context.Context, network, addr string, _ *tls.Config) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}}
	defer clearClient.CloseIdleConnections()
	if err := wantHTTP2(secureClient, secure.URL); err != nil {
		return err
	}
	if err := wantHTTP2(clearClient, clear.URL); err != nil {
		return err
	}
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(2, func(i int) error {
			if i == 0 {
				return getRoutes(e, ctx, secureClient, secure.URL, 3, time.Millisecond)
			}
			return getRoutes(e, ctx, clearClient, clear.URL, 3, time.Millisecond)
		})
	})
}

// wantHTTP2 makes sure that the scenario is what its name says.
func wantHTTP2(c *http.Client, url string) error {
	res, err := c.Get(url + "/fast")
	if err != nil {
		return err
	}
	if res.ProtoMajor != 2 {
		res.Body.Close()
		return fmt.Errorf("%s speaks %s, not HTTP/2", url, res.Proto)
	}
	return drain(res, http.StatusOK)
}
