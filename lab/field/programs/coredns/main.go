// Coredns is CoreDNS with the plugins that are most used, and none that brings a cloud's client along: it builds in a minute.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/erratic"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/pprof"
	_ "github.com/coredns/coredns/plugin/template"
	_ "github.com/coredns/coredns/plugin/whoami"
)

// The order of plugins is that of CoreDNS's plugin.cfg.
func init() {
	dnsserver.Directives = []string{"bind", "pprof", "prometheus", "errors", "cache", "template", "erratic", "whoami", "forward"}
}

func main() { coremain.Run() }
