//go:build linux

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
	"net/http/httptest"
	"net/http/pprof"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testchild"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/kube/internal/kubetest"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/mark"
)

func TestMain(m *testing.M) { testchild.Main(m, service) }

// order is the fault of the service of these tests.
func order(w http.ResponseWriter, _ *http.Request) {
	time.Sleep(20 * time.Millisecond)
	io.WriteString(w, "ok")
}

// service is a Go service that listens on loopback, with a client. It prints the address of its
// profiling port.
func service(_, job string) error {
	mux, debug := http.NewServeMux(), http.NewServeMux()
	mux.HandleFunc("/order", order)
	debug.HandleFunc("/debug/pprof/", pprof.Index)
	debug.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	debug.HandleFunc("/debug/pprof/profile", pprof.Profile)
	debug.HandleFunc("/debug/pprof/trace", pprof.Trace)
	if job == "flight" {
		rec, err := flight.Start(flight.Options{})
		if err != nil {
			return err
		}
		defer rec.Stop()
		debug.Handle("/debug/flight", rec)
	}
	shop, looked := httptest.NewServer(mark.Handler(mux)), httptest.NewServer(debug)
	requests := func(n int) {
		for i := 0; i != n; i++ {
			if resp, err := http.Get(shop.URL + "/order"); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
	}
	if job == "flight" {
		requests(30) // requests for the flight recorder
	}
	go requests(-1)
	fmt.Println(looked.Listener.Addr())
	return testchild.Wait()
}

// pod returns a running pod.
func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: kubetest.Namespace, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "shop", "app.kubernetes.io/version": "v2"}},
		Spec: corev1.PodSpec{NodeName: "node-3", Containers: []corev1.Container{{
			Name: "app", Image: "registry.example/shop:v2",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "app", RestartCount: 1}}},
	}
}

// addHandlerPod adds a pod whose port 6060 is served by a handler.
func addHandlerPod(t *testing.T, api *kubetest.API, name string, h http.Handler) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	api.PutPod(pod(name))
	api.AddPort(name, 6060, s.Listener.Addr().String())
}

// addServicePod adds a pod whose port 6060 is served by a service in a separate process.
func addServicePod(t *testing.T, api *kubetest.API, name, job string) {
	t.Helper()
	address, stop, err := testchild.Start(testchild.Command("service " + job))
	must.Do(t, err)
	t.Cleanup(stop)
	api.PutPod(pod(name))
	api.AddPort(name, 6060, address)
}

// call runs the command against an API. It fails the test if a connection remains, or a file other
// than the requested ones.
func call(t *testing.T, ctx context.Context, api *kubetest.API, args ...string) (status int, out, errText string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	dir := t.TempDir()
	status = Run(ctx, append([]string{"--kubeconfig", api.Config(t)}, args...), Streams{strings.NewReader(""), &stdout, &stderr}, dir)
	for api.OpenConnections() > 0 { // until the test's deadline
		time.Sleep(time.Millisecond)
	}
	for _, f := range must.Have(os.ReadDir(dir))(t) {
		check.False(t, strings.Contains(f.Name(), ".part"), "%s is left", f.Name())
	}
	return status, stdout.String(), stderr.String()
}

func wantTexts(t *testing.T, name, got string, want ...string) {
	t.Helper()
	unwrapped := strings.Join(strings.Fields(got), " ")
	for _, w := range want {
		check.True(t, strings.Contains(unwrapped, w), "%s does not hold %q:\n%s", name, w, got)
	}
}

// TestPods records two services in separate processes, over WebSocket and over SPDY, and finds their
// faults.
func TestPods(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	api := &kubetest.API{
		Selectors: map[string]map[string]string{"deployments/shop": {"app": "shop"}},
		Events:    []corev1.Event{{Reason: "Unhealthy", Message: "Readiness probe failed", Count: 3, LastTimestamp: metav1.Now()}},
	}
	addServicePod(t, api, "shop-1", "")
	addServicePod(t, api, "shop-2", "")
	dir := filepath.Join(t.TempDir(), "out")
	status, out, stderr := call(t, t.Context(), api, "-l", "app=shop", "--seconds", "1", "--json", "--html", "--events", "-o", dir)
	must.True(t, status == cli.ExitOK, "status %d: %s", status, stderr)
	var got struct {
		Pods []struct {
			answer
			Report report.Report `json:"report"`
		} `json:"pods"`
	}
	must.Do(t, json.Unmarshal([]byte(out), &got))
	must.True(t, len(got.Pods) == 2 && api.WebSockets != 0 && api.SPDY == 0,
		"%d pods, %d WebSockets, %d by SPDY", len(got.Pods), api.WebSockets, api.SPDY)
	for i, p := range got.Pods {
		cause := mainCause(&p.Report)
		check.True(t, p.Pod == fmt.Sprint("shop-", i+1) && !p.Truncated && cause == "sleep plugin.order",
			"%s: late for %q: %+v", p.Pod, cause, p.answer)
		check.True(t, p.Report.Input.Service["k8s.node.name"] == "node-3" && len(p.Events) == 1 && p.Events[0].Count == 3,
			"about %v, events %v", p.Report.Input.Service, p.Events)
		f := must.Have(os.Open(p.File))(t)
		defer f.Close()
		m := must.Have(bundle.New(f, must.Have(f.Stat())(t).Size()))(t).Meta()
		if m.Service["k8s.container.cpu.limit"] != "500m" || m.Service["container.image.name"] != "registry.example/shop:v2" || m.Service["service.version"] != "v2" {
			t.Errorf("the recording says %v", m.Service)
		}
		check.True(t, bytes.Contains(must.Have(os.ReadFile(p.Page))(t), []byte("plugin.order")), "%s does not name the cause", p.Page)
	}

	api.RefusesWebSockets = true
	status, out, stderr = call(t, t.Context(), api, "deploy/shop", "--seconds", "1", "--port", "6060")
	must.True(t, status == cli.ExitOK && api.SPDY != 0, "status %d, %d by SPDY: %s", status, api.SPDY, stderr)
	wantTexts(t, "the answer", out, "shop-1:6060", "pod shop-1 in namespace shop on node node-3 · container app · image registry.example/shop:v2 · CPU limit 500m", "plugin.order", "shop-2")
}

// mainCause returns the cause with most of the slow requests' time, and the function of its site.
func mainCause(r *report.Report) string {
	for _, v := range r.Verdict {
		if len(v.Causes) > 0 && len(v.Causes[0].Sites) > 0 && v.Causes[0].Sites[0].Site != nil {
			fn := v.Causes[0].Sites[0].Site.Func
			return string(v.Causes[0].Cause) + " " + fn[strings.LastIndexByte(fn, '/')+1:]
		}
	}
	return ""
}

// TestFlight: the flight recorder's recording is used, and a new one is recorded if that is requested.
func TestFlight(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	api := new(kubetest.API)
	addServicePod(t, api, "shop-1", "flight")
	for _, c := range []struct {
		args []string
		want string
	}{{nil, "that its flight recorder held"}, {[]string{"--flight"}, "that its flight recorder held"}, {[]string{"--seconds", "1"}, "recording 1 s"}} {
		status, out, stderr := call(t, t.Context(), api, append(c.args, "pod/shop-1")...)
		must.True(t, status == cli.ExitOK, "%v: status %d: %s", c.args, status, stderr)
		wantTexts(t, fmt.Sprint(c.args), stderr, c.want)
		wantTexts(t, "the answer", out, "plugin.order", "pod shop-1 in namespace shop")
	}
}

// TestWatch runs whylate's verb watch for one round.
func TestWatch(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process")
	}
	t.Parallel()
	api := new(kubetest.API)
	addServicePod(t, api, "shop-1", "")
	status, out, stderr := call(t, t.Context(), api, "shop-1", "--watch", "--", "--plain", "--looks", "1")
	must.True(t, status == cli.ExitOK, "status %d: %s", status, stderr)
	wantTexts(t, "the screen", out, "shop-1:6060", "plugin.order")
}

// traceHandler serves a recorded trace and then calls afterTrace.
func traceHandler(t *testing.T, afterTrace func(w http.ResponseWriter, r *http.Request)) http.Handler {
	trace := testprog.Service(t, "h2-sleep").Trace
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "profiles") })
	mux.HandleFunc("/debug/pprof/profile", http.NotFound)
	mux.HandleFunc("/debug/pprof/allocs", http.NotFound)
	mux.HandleFunc("/debug/pprof/trace", func(w http.ResponseWriter, r *http.Request) {
		w.Write(trace)
		w.(http.Flusher).Flush()
		afterTrace(w, r)
	})
	return mux
}

// TestRestart: the trace until the end of a container is kept, with the reason for the end.
func TestRestart(t *testing.T) {
	api := new(kubetest.API)
	addHandlerPod(t, api, "shop-1", traceHandler(t, func(http.ResponseWriter, *http.Request) {
		p := pod("shop-1")
		p.Status.ContainerStatuses[0].RestartCount = 2
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}
		api.PutPod(p)
		panic(http.ErrAbortHandler)
	}))
	dir := t.TempDir()
	status, out, stderr := call(t, t.Context(), api, "shop-1", "--seconds", "9", "-o", dir)
	must.True(t, status == cli.ExitOK, "status %d: %s", status, stderr)
	const reason = "container app of pod shop-1 ended while it was recorded (OOMKilled, exit status 137)"
	wantTexts(t, "what is said", stderr, reason)
	wantTexts(t, "the answer", out, "cut short", "recording: "+dir)
	names := must.Have(filepath.Glob(filepath.Join(dir, "shop-1-*.whylate")))(t)
	must.Equal(t, len(names), 1, "kept %v", names)
	f := must.Have(os.Open(names[0]))(t)
	defer f.Close()
	m := must.Have(bundle.New(f, must.Have(f.Stat())(t).Size()))(t).Meta()
	check.True(t, m.Truncated && slices.ContainsFunc(m.Warnings, func(w bundle.Warning) bool { return strings.Contains(w.Text, reason) }),
		"the recording is not marked: %+v", m)
}

// TestNoHostSamples: no process of this machine is sampled, also if a pod has its name.
func TestNoHostSamples(t *testing.T) {
	api, dir := new(kubetest.API), t.TempDir()
	addHandlerPod(t, api, "localhost", traceHandler(t, func(http.ResponseWriter, *http.Request) {}))
	status, _, stderr := call(t, t.Context(), api, "localhost", "--seconds", "1", "-o", dir)
	check.True(t, status == cli.ExitOK && !strings.Contains(stderr, "host samples"), "status %d: %s", status, stderr)
	f := must.Have(os.Open(must.Have(filepath.Glob(filepath.Join(dir, "*.whylate")))(t)[0]))(t)
	defer f.Close()
	for _, w := range must.Have(bundle.New(f, must.Have(f.Stat())(t).Size()))(t).Meta().Warnings {
		check.False(t, strings.Contains(w.Text, "host samples"), "%s", w.Text)
	}
}

// TestInterrupt: an interrupt ends a long recording and leaves no file.
func TestInterrupt(t *testing.T) {
	api := new(kubetest.API)
	ctx, cancel := context.WithCancel(t.Context())
	addHandlerPod(t, api, "shop-1", traceHandler(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done() // until the connection through the cluster is closed
	}))
	if status, _, stderr := call(t, ctx, api, "shop-1", "--seconds", "300"); status != cli.ExitInterrupted {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// silentAddr returns the address of a listener that accepts connections and sends nothing.
func silentAddr(t *testing.T) string {
	l := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// TestErrors: each error has its cause and advice.
func TestErrors(t *testing.T) {
	t.Parallel()
	api := new(kubetest.API)
	addHandlerPod(t, api, "ok-1", traceHandler(t, func(http.ResponseWriter, *http.Request) {}))
	addHandlerPod(t, api, "page-1", http.NotFoundHandler())
	addHandlerPod(t, api, "locked-1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	addHandlerPod(t, api, "closed-1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	api.PutPod(pod("silent-1"))
	api.AddPort("mute-1", 7000, silentAddr(t))
	p := pod("mute-1")
	p.Annotations = map[string]string{"whylate/port": "7001"}
	api.PutPod(p)
	p = pod("pending-1")
	p.Status.Phase, p.Status.ContainerStatuses[0].State.Waiting = corev1.PodPending, &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}
	api.PutPod(p)
	forbidden := &kubetest.API{Forbidden: map[string]bool{"pods": true}}
	tied := &kubetest.API{Forbidden: map[string]bool{"pods/portforward": true}}
	tied.PutPod(pod("shop-1"))
	for _, c := range []struct {
		name   string
		api    *kubetest.API
		args   []string
		status int
		want   []string
	}{
		{"no name", api, nil, 2, []string{"name a pod", "--help"}},
		{"unknown flag", api, []string{"--nonsense"}, 2, []string{"unknown flag", "--help"}},
		{"kinds", api, []string{"node/x"}, 2, []string{"deployment/"}},
		{"selector", api, []string{"-l", "app=none"}, 3, []string{"no pod in namespace shop matches"}},
		{"bad selector", api, []string{"-l", "!!"}, 2, []string{"-l"}},
		{"path", api, []string{"ok-1", "--port", "6060", "--path", "/none", "--seconds", "1"}, 3, []string{"http://ok-1:6060/none"}},
		{"no pod", api, []string{"shop-9"}, 3, []string{`no pod "shop-9" in namespace shop`, "kubectl get pods", "-n names"}},
		{"no deployment", api, []string{"deploy/x"}, 3, []string{`no deployment "x"`}},
		{"pending", api, []string{"pending-1"}, 3, []string{"pending-1 is Pending, ImagePullBackOff", "kubectl describe"}},
		{"container", api, []string{"ok-1", "-c", "sidecar"}, 3, []string{`no container "sidecar", only app`}},
		{"port's name", api, []string{"ok-1", "--port", "pprof"}, 3, []string{`"pprof" is neither`}},
		{"may not list", forbidden, []string{"x"}, 3, []string{"you may not read pods in namespace shop", "docs/kubernetes.md"}},
		{"may not forward", tied, []string{"shop-1"}, 3, []string{"pods/portforward", "get and create"}},
		{"nothing listens", api, []string{"ok-1", "--port", "7"}, 3, []string{"nothing listens on port 7 of pod ok-1", "--port"}},
		{"annotation", api, []string{"mute-1"}, 3, []string{"nothing listens on port 7001"}},
		{"nothing found", api, []string{"silent-1"}, 3, []string{"at none of the ports 6060, 6061", "nothing listens there", "import net/http/pprof"}},
		{"no pprof", api, []string{"page-1"}, 3, []string{"port 6060: no net/http/pprof there: /debug/pprof/ is answered with 404"}},
		{"pprof wants credentials", api, []string{"locked-1"}, 3, []string{"recording a trace from http://locked-1:6060", "401 Unauthorized"}},
		{"pprof is closed", api, []string{"closed-1"}, 3, []string{"recording a trace from http://closed-1:6060", "403 Forbidden"}},
		{"no pprof at the port", api, []string{"page-1", "--port", "6060"}, 3, []string{"404", "net/http/pprof"}},
		{"no flight recorder", api, []string{"ok-1", "--flight", "--port", "6060"}, 3, []string{"there is no flight recorder"}},
		{"one of two", api, []string{"ok-1", "silent-1", "--seconds", "1"}, 3, []string{"pod silent-1: "}},
		{"bad flag of explain", api, []string{"ok-1", "--seconds", "1", "--", "--band", "p7"}, 2, []string{"--band"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			status, out, stderr := call(t, t.Context(), c.api, c.args...)
			check.Equal(t, status, c.status, "status")
			wantTexts(t, "what is said", stderr, c.want...)
			if c.name == "one of two" {
				wantTexts(t, "the answer", out, "ok-1:6060")
			}
		})
	}
}

// TestMutePort: the command gives up on a port that accepts connections and sends nothing.
func TestMutePort(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a timeout")
	}
	t.Parallel()
	api := new(kubetest.API)
	api.PutPod(pod("mute-1"))
	api.AddPort("mute-1", 6060, silentAddr(t))
	status, _, stderr := call(t, t.Context(), api, "mute-1")
	check.Equal(t, status, cli.ExitFailed, "status")
	wantTexts(t, "what is said", stderr, "port 6060: no answer to an HTTP request")
}

// TestContainer: the attributes of a pod are those of the container that serves the port, with its
// present limits.
func TestContainer(t *testing.T) {
	p := pod("x")
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "sidecar", Ports: []corev1.ContainerPort{{ContainerPort: 9000}}})
	p.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}}
	for _, c := range []struct {
		name string
		port int
		want string
	}{{"", 6060, "app 1500m"}, {"", 9000, "sidecar none"}, {"app", 9000, "app 1500m"}} {
		tg := must.Have(new(cluster).newTarget(p, c.name))(t)
		tg.selectContainer(c.port)
		attributes := tg.attributes()
		check.Equal(t, attributes["k8s.container.name"]+" "+attributes["k8s.container.cpu.limit"], c.want,
			"container %q, port %d", c.name, c.port)
	}
}

func TestCandidates(t *testing.T) {
	p := pod("x")
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 8443}, {Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}, {Name: "http-debug", ContainerPort: 7777}}
	noted := p.DeepCopy()
	noted.Annotations = map[string]string{"profiles.grafana.com/cpu.port": "9999"}
	for _, c := range []struct {
		pod  *corev1.Pod
		flag string
		want string
	}{
		{p, "", "[7777 6060 8443 6061 8080 8081 9090] false"},
		{p, "web", "[8443] true"},
		{p, "80", "[80] true"},
		{noted, "", "[9999] true"},
		{noted, "http-debug", "[7777] true"},
	} {
		ports, sure, err := candidatePorts(c.pod, c.flag)
		if got := fmt.Sprint(ports, " ", sure); err != nil || got != c.want {
			t.Errorf("%q: %s, %v; want %s", c.flag, got, err, c.want)
		}
	}
	for _, flag := range []string{"0", "65536", "-1", "x\x1b"} {
		if _, _, err := candidatePorts(p, flag); err == nil || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%q: %v", flag, err)
		}
	}
}

// TestExitStatus: an interrupt determines the status, in any order of failures.
func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		pods []int
		want int
	}{
		{nil, cli.ExitOK},
		{[]int{cli.ExitOK, cli.ExitFailed, cli.ExitOK}, cli.ExitFailed},
		{[]int{cli.ExitInterrupted, cli.ExitFailed}, cli.ExitInterrupted},
		{[]int{cli.ExitFailed, cli.ExitInterrupted, cli.ExitOK}, cli.ExitInterrupted},
	} {
		var answers []*answer
		for _, status := range c.pods {
			answers = append(answers, &answer{status: status})
		}
		check.Equal(t, exitStatus(answers), c.want, "%v", c.pods)
	}
}

// TestEvents: the events are those of the last hour, sorted by the time of their last occurrence.
func TestEvents(t *testing.T) {
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	api := &kubetest.API{Events: []corev1.Event{
		{Reason: "Late", LastTimestamp: metav1.NewTime(ago(61 * time.Minute))},
		{Reason: "Second", EventTime: metav1.NewMicroTime(ago(30 * time.Minute))},
		{Reason: "First", LastTimestamp: metav1.NewTime(ago(59 * time.Minute))},
		{Reason: "Last", LastTimestamp: metav1.NewTime(ago(5 * time.Hour)), Series: &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(ago(time.Minute))}},
		{Reason: "Over", LastTimestamp: metav1.Now(), Series: &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(ago(2 * time.Hour))}},
	}}
	c := connectTo(t, api)
	var got []string
	for _, e := range must.Have((&target{cluster: c, pod: pod("x")}).events(t.Context()))(t) {
		got = append(got, e.Reason)
	}
	if want := []string{"First", "Second", "Last"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for i := range maxEvents {
		api.Events = append(api.Events, corev1.Event{Reason: "More", LastTimestamp: metav1.NewTime(ago(time.Duration(40+i) * time.Minute))})
	}
	list := must.Have((&target{cluster: c, pod: pod("x")}).events(t.Context()))(t)
	check.True(t, len(list) == maxEvents && list[0].Reason == "More" && list[maxEvents-1].Reason == "Last", "%+v", list)
}

// TestOptions: options that exclude each other, and numbers beyond their bounds, are refused.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		change func(*options)
		want   string
	}{
		{func(o *options) {}, ""},
		{func(o *options) { o.args = nil }, "name a pod"},
		{func(o *options) { o.args, o.selector = nil, "app=shop" }, ""},
		{func(o *options) { o.seconds = 0 }, "--seconds takes 1 to 300"},
		{func(o *options) { o.seconds = 1 }, ""},
		{func(o *options) { o.seconds = 300 }, ""},
		{func(o *options) { o.seconds = 301 }, "--seconds takes"},
		{func(o *options) { o.pods = 0 }, "--max-pods takes 1 to 16"},
		{func(o *options) { o.pods = 1 }, ""},
		{func(o *options) { o.pods = 16 }, ""},
		{func(o *options) { o.pods = 17 }, "--max-pods takes"},
		{func(o *options) { o.flight = true }, ""},
		{func(o *options) { o.flight, o.hasSeconds = true, true }, "--flight takes"},
		{func(o *options) { o.flight, o.watch = true, true }, "--flight takes"},
		{func(o *options) { o.kernel = true }, "--kernel needs"},
		{func(o *options) { o.kernel, o.nodeAgent = true, "x" }, ""},
		{func(o *options) { o.nodeAgent, o.watch = "x", true }, "--node-agent prints"},
		{func(o *options) { o.nodeAgent, o.flight = "x", true }, "--node-agent prints"},
		{func(o *options) { o.nodeAgent, o.json = "x", true }, "--node-agent prints"},
		{func(o *options) { o.nodeAgent, o.html = "x", true }, "--node-agent prints"},
		{func(o *options) { o.nodeAgent, o.output = "x", "x" }, "--node-agent prints"},
		{func(o *options) { o.watch = true }, ""},
		{func(o *options) { o.watch, o.json = true, true }, "--watch goes with none"},
		{func(o *options) { o.watch, o.html = true, true }, "--watch goes with none"},
		{func(o *options) { o.watch, o.output = true, "x" }, "--watch goes with none"},
		{func(o *options) { o.watch, o.full = true, true }, "--watch goes with none"},
		{func(o *options) { o.watch, o.events = true, true }, "--watch goes with none"},
		{func(o *options) { o.json, o.html, o.output, o.full, o.events = true, true, "x", true, true }, ""},
	} {
		o := options{args: []string{"shop-1"}, seconds: 10, pods: 8}
		c.change(&o)
		err := o.check()
		check.True(t, (err == nil) == (c.want == "") && strings.Contains(fmt.Sprint(err), c.want), "%+v: %v, want %q", o, err, c.want)
	}
}

// TestDialEnds: dialling through a cluster that does not answer fails within a minute.
func TestDialEnds(t *testing.T) {
	release := make(chan struct{})
	config := &rest.Config{Host: "http://cluster.invalid", Proxy: func(*http.Request) (*url.URL, error) { <-release; return nil, errors.New("released") }}
	client := must.Have(typedv1.NewForConfig(config))(t).RESTClient()
	synctest.Test(t, func(t *testing.T) {
		release = make(chan struct{}) // belongs to the bubble
		begin := time.Now()
		_, err := (&forwarder{config, client}).dial(t.Context(), "shop", "shop-1", "6060")
		if e, ok := errors.AsType[*record.Error](err); !ok || e.Kind != record.Timeout || time.Since(begin) > time.Minute {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		close(release)
	})
}

// TestCleanText: a cluster's text contains no control sequence, does not change the direction of
// writing, and stays on its line, wherever it is printed.
func TestCleanText(t *testing.T) {
	const hostile = "a\u009b31mred\u202ednib\x1b]0;x\x07\n\u2066b\xff" // U+009B begins a control sequence as ESC [ does
	if got, want := shortText(hostile), `a\u009b31mred\u202ednib\x1b]0;x\x07 \u2066b\xff`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := shortText(strings.Repeat("\u202e", 1000)); len(got) > 310 {
		t.Errorf("%d bytes", len(got))
	}
	api := &kubetest.API{Events: []corev1.Event{{Reason: hostile, Message: hostile, Count: 3, LastTimestamp: metav1.Now()}}}
	addHandlerPod(t, api, "shop-1", traceHandler(t, func(http.ResponseWriter, *http.Request) {}))
	p := pod("shop-2")
	p.Annotations = map[string]string{"whylate/port": hostile + "x"}
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: hostile, ContainerPort: 1}}
	api.PutPod(p)
	p = pod("shop-3")
	p.Status.Phase, p.Status.ContainerStatuses[0].State.Waiting = corev1.PodPending, &corev1.ContainerStateWaiting{Reason: hostile}
	api.PutPod(p)
	for _, args := range [][]string{{"shop-1", "--seconds", "1", "--events"}, {"shop-2"}, {"shop-3"}, {"shop-1", "--port", hostile}} {
		_, out, stderr := call(t, t.Context(), api, args...)
		if text := out + stderr; !strings.Contains(text, `\u009b31m`) || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("%q: %q", args, text)
		}
		check.Equal(t, strings.Count(out, "(3 times)"), strings.Count(strings.Join(args, " "), "--events"), "%q: %q", args, out)
	}
}
