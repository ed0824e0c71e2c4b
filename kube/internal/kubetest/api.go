package kubetest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	tunnel "k8s.io/client-go/tools/portforward"
	"k8s.io/cri-streaming/pkg/streaming/portforward"

	"github.com/whylate/whylate/internal/testing/must"
)

// Namespace is the namespace of all pods.
const Namespace = "shop"

// An API answers like an API server: about pods, what selects them, and events, and it forwards ports
// through its Kubelet.
type API struct {
	Kubelet
	Selectors map[string]map[string]string // labels by kind and name, such as deployments/shop
	Events    []corev1.Event

	mu                sync.Mutex
	pods              map[string]*corev1.Pod
	RefusesWebSockets bool            // answer requests for WebSockets with an error
	Forbidden         map[string]bool // resources and subresources without permission
	WebSockets        int             // number of opened WebSockets
	SPDY              int
}

// PutPod adds or replaces a pod.
func (a *API) PutPod(p *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pods == nil {
		a.pods = map[string]*corev1.Pod{}
	}
	a.pods[p.Name] = p
}

// Config serves the API on loopback until the test ends, and returns the name of a kubeconfig for it.
func (a *API) Config(t testing.TB) string {
	t.Helper()
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	return Kubeconfig(t, s.URL, "")
}

// Kubeconfig writes a kubeconfig for the API server at a URL.
func Kubeconfig(t testing.TB, url, token string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test",
"clusters":[{"name":"test","cluster":{"server":%q,"insecure-skip-tls-verify":%t}}],
"users":[{"name":"test","user":{"token":%q}}],
"contexts":[{"name":"test","context":{"cluster":"test","user":"test","namespace":%q}}]}`, url, strings.HasPrefix(url, "https:"), token, Namespace)
	must.Do(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// ServeHTTP answers, in the namespace, reads of events, of pods, of one pod, and of objects with a selector, and forwards the
// ports of pods. Resources in Forbidden get status 403, all else 404.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"+Namespace+"/")
	if !ok {
		path, _ = strings.CutPrefix(r.URL.Path, "/apis/apps/v1/namespaces/"+Namespace+"/")
	}
	parts := strings.Split(path, "/")
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Forbidden[parts[0]] || len(parts) == 3 && a.Forbidden[parts[0]+"/"+parts[2]] {
		writeStatus(w, http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("%s is forbidden: User \"me\" cannot use resource %q", parts[0], path))
		return
	}
	switch {
	case parts[0] == "events":
		writeJSON(w, corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}, Items: a.Events})
	case a.Selectors[path] != nil && parts[0] == "services":
		writeJSON(w, corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, Spec: corev1.ServiceSpec{Selector: a.Selectors[path]}})
	case a.Selectors[path] != nil: // deployments, stateful sets, daemon sets and replica sets have their selector at the same place
		writeJSON(w, appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: a.Selectors[path]}}})
	case parts[0] == "pods" && len(parts) == 1:
		match, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err != nil {
			writeStatus(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
			return
		}
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		for _, p := range a.pods {
			if match.Matches(labels.Set(p.Labels)) {
				list.Items = append(list.Items, *p)
			}
		}
		writeJSON(w, list)
	case parts[0] == "pods" && a.pods[parts[1]] != nil && len(parts) == 2:
		writeJSON(w, a.pods[parts[1]])
	case parts[0] == "pods" && a.pods[parts[1]] != nil && parts[2] == "portforward":
		a.mu.Unlock()
		defer a.mu.Lock()
		a.forward(w, r, parts[1])
	default:
		writeStatus(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%q not found", path))
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func writeStatus(w http.ResponseWriter, code int, reason metav1.StatusReason, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: text})
}

// forward passes SPDY to the kubelet, and unpacks SPDY from a WebSocket, as API servers have done
// since Kubernetes 1.31.
func (a *API) forward(w http.ResponseWriter, r *http.Request, pod string) {
	if !websocket.IsWebSocketUpgrade(r) {
		a.increment(&a.SPDY)
		a.Kubelet.Serve(w, r, pod)
		return
	}
	if a.RefusesWebSockets {
		writeStatus(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "Upgrade request required")
		return
	}
	up := websocket.Upgrader{Subprotocols: []string{"SPDY/3.1+" + portforward.ProtocolV1Name}}
	c, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	a.increment(&a.WebSockets)
	inner := r.Clone(r.Context())
	inner.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {portforward.ProtocolV1Name}}
	a.Kubelet.Serve(&tunneledResponse{conn: tunnel.NewTunnelingConnection("server", c), head: http.Header{}}, inner, pod)
}

// increment adds one to a counter of the API. It may be called concurrently.
func (a *API) increment(n *int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*n++
}

// A tunneledResponse is the response to an upgrade that is already complete. Hijack returns the
// tunnel.
type tunneledResponse struct {
	conn net.Conn
	head http.Header
}

func (t *tunneledResponse) Header() http.Header         { return t.head }
func (t *tunneledResponse) Write(p []byte) (int, error) { return len(p), nil }
func (t *tunneledResponse) WriteHeader(int)             {}
func (t *tunneledResponse) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return t.conn, bufio.NewReadWriter(bufio.NewReader(t.conn), bufio.NewWriter(t.conn)), nil
}
