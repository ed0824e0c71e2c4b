//go:build linux

package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/kube/internal/kubetest"
)

// ownLines are the lines of an output that are the plugin's: an answer of whylate explain is one line here.
func ownLines(text string) string {
	ownLine := regexp.MustCompile(`^(event |recording: |page: |kubectl whylate|  \w+-\d)`)
	var out []string
	for line := range strings.Lines(text) {
		switch {
		case ownLine.MatchString(line):
			out = append(out, strings.TrimSpace(line))
		case strings.TrimSpace(line) == "":
			if len(out) > 0 && out[len(out)-1] != "(answer)" {
				out = append(out, "")
			}
		case len(out) == 0 || out[len(out)-1] != "(answer)":
			out = append(out, "(answer)")
		}
	}
	return strings.Join(out, "\n")
}

// TestOutputs: testdata/outputs.txt has what the command prints in each form, next to the answers of whylate explain.
func TestOutputs(t *testing.T) {
	event := func(reason string, count int32, age time.Duration) corev1.Event {
		return corev1.Event{Reason: reason, Message: "message of " + reason, Count: count, LastTimestamp: metav1.NewTime(time.Now().Add(-age))}
	}
	api := &kubetest.API{Events: []corev1.Event{event("Once", 1, time.Minute), event("Twice", 2, 2*time.Minute)}}
	for _, name := range []string{"shop-1", "shop-2", "shop-3"} {
		addHandlerPod(t, api, name, traceHandler(t, func(http.ResponseWriter, *http.Request) {}))
	}
	held := must.Have(os.ReadFile(testprog.Recording(t, "cases/geo.whylate")))(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/flight", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "state" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
			return
		}
		_, _ = w.Write(held)
	})
	addHandlerPod(t, api, "flight-1", mux)
	p := pod("noted-1")
	p.Annotations = map[string]string{"whylate/path": "/elsewhere"}
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "pprof", ContainerPort: 7}}
	api.PutPod(p)
	dir := filepath.Join(t.TempDir(), "new", "out")
	workDir := must.Have(os.Getwd())(t)
	t.Chdir(t.TempDir())
	var all strings.Builder
	for _, args := range []string{
		"shop-1", "shop-1 shop-2", "-l app=shop --max-pods 2", "shop-1 --full", "shop-1 --events", "shop-1 shop-2 --html -o DIR", "shop-2 --html", "shop-1 --json --events -o DIR", "shop-1 --json --html",
		"flight-1", "flight-1 --flight --json", "flight-1 --path /debug/flight", "flight-1 --seconds 1 --port 6060", "noted-1", "shop-1 -o /dev/null/x", "shop-1 --watch -- --plain --looks 1", "shop-1 --watch --port 7x", "shop-1 missing-1",
	} {
		fields := strings.Fields(strings.ReplaceAll(args, "DIR", dir))
		if !strings.Contains(args, "--seconds") && !strings.Contains(args, "flight") && !strings.Contains(args, "--watch") {
			fields = append([]string{"--seconds", "2"}, fields...)
		}
		status, out, stderr := call(t, t.Context(), api, fields...)
		var answers struct{ Pods []map[string]any }
		if strings.Contains(args, "--json") {
			must.Do(t, json.Unmarshal([]byte(out), &answers), args)
			check.True(t, strings.HasPrefix(out, "{\n  \"pods\": [\n    {\n"), "%s: %.40q", args, out)
			for _, a := range answers.Pods {
				r := a["report"].(map[string]any)
				a["report"] = fmt.Sprint(len(r) > 5, r["input"].(map[string]any)["name"])
				for _, e := range append([]any{}, toList(a["events"])...) {
					delete(e.(map[string]any), "time")
				}
			}
			out = string(must.Have(json.Marshal(answers.Pods))(t))
		} else {
			check.Equal(t, strings.Contains(out, "runtime"), strings.Contains(args, "--full"), "%s shows the runtime", args)
			check.False(t, strings.HasPrefix(out, "\n"), "%s begins with an empty line", args)
			out = ownLines(out)
		}
		messages := slices.Sorted(strings.Lines(stderr)) // pods are recorded at the same time
		stderr = strings.Join(messages, "")
		fmt.Fprintf(&all, "$ kubectl whylate %s\nstatus %d\n%s\n%s\n\n", args, status, stderr, out)
	}
	text := strings.ReplaceAll(all.String(), dir, "DIR")
	for pattern, replacement := range map[string]string{`\d{8}T\d{6}Z`: "TIME", `event \d\d:\d\d:\d\d`: "event CLOCK", `"bytes":\d+`: `"bytes":N`} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, replacement)
	}
	files := must.Have(filepath.Glob(dir + "/*"))(t)
	check.True(t, len(files) >= 4, "kept: %v", files)
	for _, page := range append(must.Have(filepath.Glob("*.html"))(t), must.Have(filepath.Glob(dir+"/*.html"))(t)...) {
		check.True(t, strings.Contains(string(must.Have(os.ReadFile(page))(t)), "<html"), "%s is no page", page)
	}
	t.Chdir(workDir)
	checkGolden(t, "outputs.txt", text)
}

func toList(v any) []any {
	list, _ := v.([]any)
	return list
}

// TestExplainEndWaits: a container that still runs is read again, for three seconds.
func TestExplainEndWaits(t *testing.T) {
	api := new(kubetest.API)
	api.PutPod(pod("x"))
	tg := must.Have(connectTo(t, api).newTarget(pod("x"), ""))(t)
	begin := time.Now()
	check.Equal(t, tg.explainEnd(t.Context()), "", "reason")
	check.True(t, time.Since(begin) >= endTimeout, "it gave up after %v", time.Since(begin))
	time.AfterFunc(endPollInterval, func() {
		p := pod("x")
		p.UID = "other"
		api.PutPod(p)
	})
	check.Equal(t, tg.explainEnd(t.Context()), "pod x was replaced while it was recorded", "reason")
}

// TestEndReason: a connection ends with the kubelet's reason, if it comes within a second.
func TestEndReason(t *testing.T) {
	for after, isReason := range map[time.Duration]bool{0: true, errorWait - 1: true, errorWait + 1: false} {
		synctest.Test(t, func(t *testing.T) {
			c := &conn{errReady: make(chan struct{}), err: &record.Error{Kind: record.Refused}}
			time.AfterFunc(after, func() { close(c.errReady) })
			err := c.endReason(io.EOF)
			check.Equal(t, err != io.EOF, isReason, "after %v: %v", after, err)
			time.Sleep(time.Minute)
			c.err = nil
			check.Equal(t, c.endReason(io.EOF), io.EOF, "without a reason")
		})
	}
	check.Equal(t, address("6060").String()+" "+address("6060").Network(), "6060 portforward", "address")
}

// TestManyPorts: at most twelve ports are tried, each once; ports that no HTTP server can have are left out.
func TestManyPorts(t *testing.T) {
	p := pod("x")
	p.Spec.InitContainers = []corev1.Container{{Name: "proxy", Ports: []corev1.ContainerPort{{Name: "admin", ContainerPort: 9901}}}}
	for i := range int32(20) {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: 100 + i}, corev1.ContainerPort{Name: fmt.Sprint("s", i), ContainerPort: 200 + i, Protocol: corev1.ProtocolSCTP})
	}
	p.Spec.Containers[0].Ports[0].ContainerPort = 6060
	ports, isSpecified, err := candidatePorts(p, "")
	check.Equal(t, fmt.Sprint(ports, isSpecified, err), "[9901 6060 101 102 103 104 105 106 107 108 109 110] false <nil>", "ports")
	for flag, want := range map[string]string{"1": "[1] true <nil>", "65535": "[65535] true <nil>", "s1": `[] true --port of pod x: "s1" is neither a port's number nor the name of one that it declares (admin)`} {
		ports, isSpecified, err := candidatePorts(p, flag)
		check.Equal(t, fmt.Sprint(ports, isSpecified, err), want, "%s", flag)
	}
}
