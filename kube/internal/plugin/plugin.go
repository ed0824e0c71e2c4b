// Package plugin is the command kubectl whylate. It selects pods, connects to their profiling ports
// through the API server, records, and runs whylate's verbs to explain the recordings. It computes
// nothing. See docs/kubernetes.md.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/spf13/pflag"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // methods of authentication

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli"
)

const usage = `kubectl whylate says why the requests of a Go service in pods are late.

usage: kubectl whylate [flags] POD|KIND/NAME... [-- FLAGS OF whylate explain OR watch]

KIND is deployment, statefulset, daemonset, replicaset or service. A pod is recorded for some seconds from its net/http/pprof, reached through
the API server as kubectl port-forward does, also where it listens on the pod's loopback only. If it serves a flight recorder (service/flight),
the last seconds that this holds are taken at once instead, unless --seconds is given. Nothing is installed in the pod and nothing listens here.

examples:
  kubectl whylate shop-7d9c5b6f4-x2x9p          # record 10 s and say why requests were late
  kubectl whylate -n shop -l app=shop --seconds 5  # every running pod with the label, at the same time
  kubectl whylate deploy/shop -o out --html     # keep recordings and pages in the directory out
  kubectl whylate deploy/shop --json
  kubectl whylate shop-0 --watch                # keep looking, until q or Ctrl-C
  kubectl whylate shop-0 -- --group checkout    # flags of whylate explain
  kubectl whylate shop-0 --node-agent registry.example/whylate:v1 --kernel  # print a pod for its node: no endpoint needed

Exit status: 0 done, also when a recording was cut but can be used; 2 wrong use; 3 a pod could not be reached, recorded or explained;
130 interrupted: what was recorded by then is explained.

flags:
`

// maxRecording bounds the bytes of a pod's recording.
const (
	maxRecording = 256 << 20
	maxSeconds   = 300
	maxPods      = 16 // --watch shows at most as many
)

// options are the values of the flags.
type options struct {
	selector, container, port, path, output        string
	nodeAgent                                      string
	kernel                                         bool
	seconds, pods                                  int
	flight, html, json, watch, full, events, noCPU bool
	hasSeconds                                     bool
	args, passedArgs                               []string // arguments before and after --
}

// A usageError reports a wrong use of the command.
type usageError struct{ error }

func newUsageError(format string, args ...any) error {
	return usageError{fmt.Errorf(format+"; see kubectl whylate --help", args...)}
}

// Streams are the standard streams of a run.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Run runs the command and returns the exit status, one of package cli. The end of ctx is an
// interrupt. Tmp is a directory for temporary recordings, which the caller removes.
func Run(ctx context.Context, args []string, s Streams, tmp string) int {
	flags := pflag.NewFlagSet("kubectl whylate", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(io.Discard)
	var o options
	flags.StringVarP(&o.selector, "selector", "l", "", "record the running pods with these labels")
	flags.StringVarP(&o.container, "container", "c", "", "the container that the service runs in (default: the pod's default container)")
	flags.StringVar(&o.port, "port", "", "number or name of the port of net/http/pprof or the flight recorder (default: annotation "+portAnnotations[0]+", else the usual ones are tried)")
	flags.StringVar(&o.path, "path", "", "path of the handlers, where it is not /debug/pprof (default: annotation "+pathAnnotation+")")
	flags.IntVar(&o.seconds, "seconds", int(record.DefaultDuration.Seconds()), "how long to record")
	flags.BoolVar(&o.flight, "flight", false, "take what the flight recorder holds, and nothing else")
	flags.BoolVar(&o.noCPU, "no-cpu", false, "take no CPU profile beside the trace")
	flags.IntVar(&o.pods, "max-pods", 8, "record this many pods at most at the same time")
	flags.StringVarP(&o.output, "output", "o", "", "keep the recordings in this `directory`")
	flags.BoolVar(&o.html, "html", false, "also write each answer as a page, into the directory of -o or the current one")
	flags.BoolVar(&o.json, "json", false, "print the reports as JSON")
	flags.BoolVar(&o.full, "full", false, "show evidence, causes by latency band, the slowest request and the runtime")
	flags.BoolVar(&o.events, "events", false, "show the pods' events of the last hour beside the answers")
	flags.BoolVar(&o.watch, "watch", false, "keep looking, as whylate watch does")
	flags.StringVar(&o.nodeAgent, "node-agent", "", "print pods that explain the services from their nodes with this `image` of whylate, for kubectl apply -f -")
	flags.BoolVar(&o.kernel, "kernel", false, "with --node-agent: also record the kernel's events")
	config := clusterFlags(flags)
	fail := func(status int, err error) int {
		fmt.Fprintf(s.Err, "kubectl whylate: %s\n", lineText(err))
		return status
	}
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(s.Out, usage+flags.FlagUsagesWrapped(120))
		return cli.ExitOK
	}
	if err == nil {
		o.args, o.hasSeconds = flags.Args(), flags.Changed("seconds")
		if n := flags.ArgsLenAtDash(); n >= 0 {
			o.args, o.passedArgs = o.args[:n], o.args[n:]
		}
		err = o.check()
	} else {
		err = newUsageError("%v", err)
	}
	if err != nil {
		return fail(cli.ExitUsage, err)
	}
	c, err := connect(config)
	if err != nil {
		return fail(cli.ExitFailed, err)
	}
	r := &run{options: o, streams: s, dir: tmp}
	status, err := r.execute(ctx, c)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return fail(cli.ExitInterrupted, errors.New("interrupted"))
	case errors.As(err, new(usageError)):
		return fail(cli.ExitUsage, err)
	default:
		return fail(max(status, cli.ExitFailed), err)
	}
	return status
}

// check returns a usage error for a value out of range or flags that exclude each other.
func (o *options) check() error {
	switch {
	case len(o.args) == 0 && o.selector == "":
		return newUsageError("name a pod, or pods by -l LABEL=VALUE")
	case o.seconds < 1 || o.seconds > maxSeconds:
		return newUsageError("--seconds takes 1 to %d", maxSeconds)
	case o.pods < 1 || o.pods > maxPods:
		return newUsageError("--max-pods takes 1 to %d", maxPods)
	case o.flight && (o.hasSeconds || o.watch):
		return newUsageError("--flight takes what is there, and goes with neither --seconds nor --watch")
	case o.kernel && o.nodeAgent == "":
		return newUsageError("--kernel needs a recorder on the node of the pod: add --node-agent IMAGE")
	case o.nodeAgent != "" && (o.watch || o.flight || o.json || o.html || o.output != ""):
		return newUsageError("--node-agent prints pods, and goes with none of --watch, --flight, --json, --html and -o")
	case o.watch && (o.json || o.html || o.output != "" || o.full || o.events):
		return newUsageError("--watch goes with none of --json, --html, -o, --full and --events; flags after -- are those of whylate watch")
	}
	return nil
}

// A run is one run of the command.
type run struct {
	options
	streams Streams
	dir     string // directory of the recordings
}

// execute runs the command for all pods and returns the exit status.
func (r *run) execute(ctx context.Context, c *cluster) (int, error) {
	targets, note, err := c.selectTargets(ctx, r.args, r.selector, r.container, r.pods)
	if err != nil {
		return 0, err
	}
	if note != "" {
		r.printMessage("%s", note)
	}
	if r.nodeAgent != "" {
		return cli.ExitOK, r.writeAgents(r.streams.Out, targets)
	}
	if r.output != "" {
		if err := os.MkdirAll(r.output, 0o755); err != nil {
			return 0, fmt.Errorf("making the directory for recordings: %w", err)
		}
		r.dir = r.output
	}
	for _, t := range targets {
		if r.path != "" {
			t.path = r.path
		}
	}
	if r.watch {
		return r.watchPods(ctx, targets)
	}
	answers := make([]*answer, len(targets))
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() { answers[i] = r.record(ctx, t) })
	}
	wg.Wait()
	for i, a := range answers {
		if a.file != "" {
			r.explainRecording(ctx, targets[i], a)
		}
	}
	return exitStatus(answers), r.writeAnswers(answers)
}

var messageMutex sync.Mutex

// printMessage prints a one-line message that is not a result. It may quote the cluster.
func (r *run) printMessage(format string, args ...any) {
	messageMutex.Lock()
	defer messageMutex.Unlock()
	fmt.Fprintln(r.streams.Err, "kubectl whylate: "+cleanText(fmt.Sprintf(format, args...), maxLine))
}

// watchPods runs whylate's verb watch on the pods, through forwarded ports, until it ends, and returns its exit status.
func (r *run) watchPods(ctx context.Context, targets []*target) (int, error) {
	targetByName := map[string]*target{}
	args := append([]string{"watch", "--no-host", "--proxy", "none"}, r.passedArgs...)
	var urls []string
	for _, t := range targets {
		if err := t.findPort(ctx, r.port, false, false); err != nil {
			return 0, err
		}
		targetByName[t.pod.Name] = t
		urls = append(urls, t.url(t.port)+t.path)
	}
	ctx = cli.WithDial(ctx, func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil || targetByName[host] == nil {
			return nil, fmt.Errorf("%s is none of the pods", addr)
		}
		return targetByName[host].dial(ctx, network, addr)
	})
	return cli.Run(ctx, append(append(args, "--"), urls...), r.streams.In, r.streams.Out, r.streams.Err), nil
}
