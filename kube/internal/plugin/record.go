package plugin

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

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
