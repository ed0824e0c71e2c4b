// Package plugin is the command kubectl whylate. It selects pods, connects to their profiling ports
// through the API server, records, and runs whylate's verbs to explain the recordings. It computes
// nothing. See docs/kubernetes.md.
package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // methods of authentication
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
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

// clusterFlags adds kubectl's flags that select the cluster and the user.
func clusterFlags(flags *pflag.FlagSet) clientcmd.ClientConfig {
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), new(clientcmd.ConfigOverrides)
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "file with clusters and users (default: KUBECONFIG, else ~/.kube/config)")
	clientcmd.BindOverrideFlags(overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// connect returns the clients of the cluster that a kubeconfig names. It sends nothing.
func connect(config clientcmd.ClientConfig) (*cluster, error) {
	rc, err := config.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is configured: set KUBECONFIG, or give --kubeconfig or --context")
	} else if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	rc.UserAgent = "kubectl-whylate/" + cli.Version()
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// Both clients share one HTTP client and its connections.
	client, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("using the kubeconfig: %w", err)
	}
	core, err := typedv1.NewForConfigAndClient(rc, client)
	if err != nil {
		return nil, fmt.Errorf("using the kubeconfig: %w", err)
	}
	apps, err := appsv1.NewForConfigAndClient(rc, client)
	if err != nil {
		return nil, fmt.Errorf("using the kubeconfig: %w", err)
	}
	return &cluster{core, apps, &forwarder{rc, core.RESTClient()}, namespace}, nil
}

// A run is one run of the command.
type run struct {
	options
	streams Streams
	dir     string // directory of the recordings
}

// An answer is the result for one pod.
type answer struct {
	Pod       string            `json:"pod"`
	Service   map[string]string `json:"service"`
	Port      int               `json:"port,omitempty"`
	Flight    bool              `json:"flight,omitempty"` // recorded by its flight recorder
	File      string            `json:"file,omitempty"`   // recording in the directory of -o
	Page      string            `json:"page,omitempty"`
	Bytes     int64             `json:"bytes,omitempty"`
	Truncated bool              `json:"truncated,omitempty"`
	Error     string            `json:"error,omitempty"`
	Events    []event           `json:"events,omitempty"`
	Report    json.RawMessage   `json:"report,omitempty"` // report/report.schema.json

	status int
	file   string // recording, including a temporary one
	report *report.Report
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

// exitStatus returns the command's status: that of the last pod that failed, or the interrupt if there was one, because it explains the failures;
// ExitOK if none failed.
func exitStatus(answers []*answer) int {
	status := cli.ExitOK
	for _, a := range answers {
		if status != cli.ExitInterrupted && a.status != cli.ExitOK {
			status = a.status
		}
	}
	return status
}

var messageMutex sync.Mutex

// printMessage prints a one-line message that is not a result. It may quote the cluster.
func (r *run) printMessage(format string, args ...any) {
	messageMutex.Lock()
	defer messageMutex.Unlock()
	fmt.Fprintln(r.streams.Err, "kubectl whylate: "+cleanText(fmt.Sprintf(format, args...), maxLine))
}

// record records a pod into a file. A failure is printed and, with its exit status, in the answer, which is never nil.
func (r *run) record(ctx context.Context, t *target) *answer {
	a := &answer{Pod: t.pod.Name}
	failed := func(err error) *answer {
		a.status, a.Error = cli.ExitFailed, lineText(err)
		if ctx.Err() != nil {
			a.status = cli.ExitInterrupted
		}
		r.printMessage("pod %s: %s", a.Pod, a.Error)
		return a
	}
	err := t.findPort(ctx, r.port, r.flight, r.hasSeconds)
	t.selectContainer(t.port)
	a.Service, a.Port, a.Flight = t.attributes(), t.port, t.flight
	if err != nil {
		return failed(err)
	}
	start := time.Now().UTC()
	name := filepath.Join(r.dir, t.pod.Name+start.Format("-20060102T150405Z")+record.BundleExt)
	host := net.JoinHostPort("localhost", strconv.Itoa(t.port))
	opt := record.Options{
		Duration: time.Duration(r.seconds) * time.Second, NoCPU: r.noCPU, NoHost: true, Proxy: "none", MaxBytes: maxRecording,
		Header: http.Header{"Host": {host}}, // services may refuse unknown host names
		Dial:   t.dial, Service: a.Service, ExplainCut: t.explainEnd, UserAgent: "kubectl-whylate/" + cli.Version(),
	}
	if t.flight {
		size, err := record.SaveFlight(ctx, t.url(t.port)+t.path, opt, name, nil)
		if err != nil {
			return failed(err)
		}
		a.Bytes, a.file = size, name
		r.printMessage("pod %s: port %d, %s that its flight recorder held (--seconds records the next ones)", a.Pod, t.port, words.Bytes(size))
		return a
	}
	r.printMessage("pod %s: port %d, recording %d s", a.Pod, t.port, r.seconds)
	res, err := record.Save(ctx, t.url(t.port)+t.path, opt, name, cli.Version(), nil)
	if res == nil {
		return failed(err)
	}
	a.Bytes, a.Truncated = res.Bytes, res.Partial
	if err != nil {
		failed(err)
		if res.HasGeneration && ctx.Err() == nil {
			a.status = cli.ExitOK
		}
	}
	if res.HasGeneration {
		a.file = name
	} else {
		_ = os.Remove(name) // it has no complete generation
	}
	return a
}

// explainRecording runs whylate's verb explain on the recording a.file, also after an interrupt, and stores the report and, if
// --events is given, the pod's events in a. If it fails, it prints the reason and stores it, with the exit status, in a.
func (r *run) explainRecording(ctx context.Context, t *target, a *answer) {
	interrupted := ctx.Err() != nil
	ctx = context.WithoutCancel(ctx)
	var out, stderr bytes.Buffer
	args := append([]string{"explain", "--json"}, r.passedArgs...)
	status := cli.Run(ctx, append(args, "--", a.file), strings.NewReader(""), &out, &stderr)
	rep, err := report.ReadJSON(&out)
	if status != cli.ExitOK || err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		a.status, a.Error = max(status, cli.ExitUsage), strings.TrimPrefix(lines[len(lines)-1], "whylate: ")
		r.printMessage("pod %s: %s", a.Pod, a.Error)
		return
	}
	rep.Input.Name, rep.Input.Service = a.Pod+":"+strconv.Itoa(a.Port), a.Service
	rep.Input.Truncated = rep.Input.Truncated || a.Truncated
	a.report = rep
	if r.output != "" {
		a.File = a.file
	}
	if r.events && !interrupted {
		if a.Events, err = t.events(ctx); err != nil {
			r.printMessage("pod %s: %s", a.Pod, lineText(err))
		}
	}
}

// writeAnswers writes the reports of all pods with their events, and a summary if there are several; with --json the answers as
// JSON, with --html a page for each. Answers without a report are left out of the text.
func (r *run) writeAnswers(answers []*answer) error {
	var reports []text.NamedReport
	columns := 0
	if f, ok := r.streams.Out.(*os.File); ok {
		columns, _, _ = term.GetSize(int(f.Fd()))
	}
	for i, a := range answers {
		if a.report == nil {
			continue
		}
		var data bytes.Buffer
		if err := report.WriteJSON(&data, a.report); err != nil {
			return err
		}
		a.Report = data.Bytes()
		reports = append(reports, text.NamedReport{Name: a.Pod, Report: a.report})
		show := []string{"report"}
		if r.full {
			show = append(show, "--full")
		}
		if r.html {
			dir := "."
			if r.output != "" {
				dir = r.output
			}
			a.Page = filepath.Join(dir, strings.TrimSuffix(filepath.Base(a.file), record.BundleExt)+".html")
			show = append(show, "--html", a.Page)
		}
		out := r.streams.Out
		if r.json {
			out = io.Discard
		} else if i > 0 {
			fmt.Fprintln(out)
		}
		if r.html || !r.json {
			if status := cli.Run(context.Background(), append(show, "-"), bytes.NewReader(a.Report), out, r.streams.Err); status != cli.ExitOK {
				return fmt.Errorf("pod %s: the answer could not be written", a.Pod)
			}
		}
		if r.json {
			continue
		}
		for _, e := range a.Events {
			fmt.Fprintf(out, "event %s %s: %s", e.Time.Format(time.TimeOnly), e.Reason, e.Message)
			if e.Count > 1 {
				fmt.Fprintf(out, " (%d times)", e.Count)
			}
			fmt.Fprintln(out)
		}
		for _, output := range [][2]string{{"recording", a.File}, {"page", a.Page}} {
			if output[1] != "" {
				fmt.Fprintf(out, "%s: %s\n", output[0], termtext.Escape(output[1]))
			}
		}
	}
	if r.json {
		e := json.NewEncoder(r.streams.Out)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"pods": answers})
	}
	if len(reports) > 1 {
		fmt.Fprintln(r.streams.Out)
		return text.WriteSummary(r.streams.Out, reports, text.Options{Width: columns})
	}
	return nil
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
