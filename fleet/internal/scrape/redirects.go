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

// An httpDiscovery sends requests to any address that the configuration names. It follows a redirect only to an address that
// allowedRanges permits: otherwise the server could make the fleet connect to private addresses.
type httpDiscovery struct {
	*http.SDConfig
	allowedRanges outgoing.AllowedRanges
}

// guardRedirects returns list with each configuration of HTTP discovery replaced by an httpDiscovery.
func guardRedirects(list discovery.Configs, allowedRanges outgoing.AllowedRanges) discovery.Configs {
	out := make(discovery.Configs, len(list))
	for i, c := range list {
		if h, ok := c.(*http.SDConfig); ok {
			c = &httpDiscovery{h, allowedRanges}
		}
		out[i] = c
	}
	return out
}

// NewDiscoverer returns a discoverer that connects to the configured addresses and to addresses in the allowed ranges, so a
// redirect cannot lead to another one. With a proxy, which may connect to any address, it follows no redirects at all.
func (h *httpDiscovery) NewDiscoverer(opts discovery.DiscovererOptions) (discovery.Discoverer, error) {
	conf := *h.SDConfig
	client := &conf.HTTPClientConfig
	if client.ProxyURL.URL != nil || client.ProxyFromEnvironment {
		client.FollowRedirects = false // a proxy would connect to any address
		return conf.NewDiscoverer(opts)
	}
	configured := make(map[string]bool)
	for _, address := range h.configuredAddresses() {
		u, err := url.Parse(address)
		if err != nil {
			return nil, err
		}
		configured[net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))] = true
	}
	opts.HTTPClientOptions = append(opts.HTTPClientOptions[:len(opts.HTTPClientOptions):len(opts.HTTPClientOptions)],
		config.WithDialContextFunc(func(ctx context.Context, network, dialled string) (net.Conn, error) {
			d := h.allowedRanges.Dialer()
			if configured[dialled] {
				d.Control = nil
			}
			return d.DialContext(ctx, network, dialled)
		}))
	return conf.NewDiscoverer(opts)
}

// configuredAddresses returns the addresses that the configuration names.
func (h *httpDiscovery) configuredAddresses() []string {
	out := []string{h.URL}
	if o := h.HTTPClientConfig.OAuth2; o != nil {
		out = append(out, o.TokenURL)
		if o.ProxyURL.URL != nil {
			out = append(out, o.ProxyURL.String())
		}
	}
	return out
}
