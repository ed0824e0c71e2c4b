// Package serve is what all mains of lab/field/programs have in common: flags, and net/http/pprof on an address of its own.
package serve

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"os/signal"
	"syscall"
)

// Place is where a program runs and what is wrong with it.
type Place struct {
	Listen string
	Data   string
	Fault  string   // empty: healthy
	Args   []string // what follows the flags
}

// Main reads the flags, calls start, which must return when the program is ready and leave it running, and then serves
// net/http/pprof until the process is told to end. Its context ends then.
func Main(start func(ctx context.Context, p Place) error) {
	var p Place
	flag.StringVar(&p.Listen, "listen", "", "address to serve on")
	flag.StringVar(&p.Data, "data", "", "directory for data")
	flag.StringVar(&p.Fault, "fault", "", "what is to be wrong")
	pprof := flag.String("pprof", "", "address of net/http/pprof; none: do not serve it")
	flag.Parse()
	p.Args = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *pprof != "" {
		l, err := net.Listen("tcp", *pprof)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go http.Serve(l, nil)
	}
	<-ctx.Done()
}
