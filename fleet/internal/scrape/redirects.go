package scrape

import (
	"cmp"
	"context"
	"net"
	"net/url"

	"github.com/prometheus/common/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/http"

	"github.com/whylate/whylate/fleet/internal/outgoing"
)

// A httpDiscovery asks an address that the configuration names, wherever that is. A redirect leads only to what allowed lets through:
// what this machine reaches is not that server's to choose.
type httpDiscovery struct {
	*http.SDConfig
	allowed outgoing.AllowedRanges
}

// guardRedirects returns the configuration with its kinds of discovery by HTTP guarded.
func guardRedirects(list discovery.Configs, allowed outgoing.AllowedRanges) discovery.Configs {
	out := make(discovery.Configs, len(list))
	for i, c := range list {
		if h, ok := c.(*http.SDConfig); ok {
			c = &httpDiscovery{h, allowed}
		}
		out[i] = c
	}
	return out
}

func (h *httpDiscovery) NewDiscoverer(opts discovery.DiscovererOptions) (discovery.Discoverer, error) {
	conf := *h.SDConfig
	client := &conf.HTTPClientConfig
	if client.ProxyURL.URL != nil || client.ProxyFromEnvironment {
		client.FollowRedirects = false // a proxy would connect to anything
		return conf.NewDiscoverer(opts)
	}
	named := make(map[string]bool)
	for _, text := range h.addresses() {
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		named[net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))] = true
	}
	opts.HTTPClientOptions = append(opts.HTTPClientOptions[:len(opts.HTTPClientOptions):len(opts.HTTPClientOptions)],
		config.WithDialContextFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
			d := h.allowed.Dialer()
			if named[address] {
				d.Control = nil
			}
			return d.DialContext(ctx, network, address)
		}))
	return conf.NewDiscoverer(opts)
}

// addresses are those that the configuration names.
func (h *httpDiscovery) addresses() []string {
	out := []string{h.URL}
	if o := h.HTTPClientConfig.OAuth2; o != nil {
		out = append(out, o.TokenURL)
		if o.ProxyURL.URL != nil {
			out = append(out, o.ProxyURL.String())
		}
	}
	return out
}
