// Package kubetest provides tests with the parts of a cluster on the path of a forwarded connection:
// the streaming server of kubelets, and an API server's answers about pods. Ports of its pods are
// ports on this machine's loopback.
package kubetest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// A Kubelet forwards ports of pods with the streaming server of kubelets and container runtimes.
type Kubelet struct {
	mu    sync.Mutex
	ports map[string]string // "pod:port" to an address
	open  int
}

// AddPort maps a port of a pod to an address on this machine.
func (k *Kubelet) AddPort(pod string, port int, address string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ports == nil {
		k.ports = map[string]string{}
	}
	k.ports[fmt.Sprint(pod, ":", port)] = address
}

// OpenConnections returns the number of forwarded connections.
func (k *Kubelet) OpenConnections() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.open
}

// addOpen adds n to the number of open connections.
func (k *Kubelet) addOpen(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open += n
}

// PortForward forwards one connection, stream, to the address that AddPort has set for this port of the pod. If that cannot be
// reached or is not set, its error has containerd's text (internal/cri/server/sandbox_portforward_linux.go).
func (k *Kubelet) PortForward(ctx context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	k.mu.Lock()
	address, ok := k.ports[fmt.Sprint(pod, ":", port)]
	k.mu.Unlock()
	refused := fmt.Errorf("failed to execute portforward in network namespace %q: failed to connect to localhost:%d inside namespace, IPv4: dial tcp4 127.0.0.1:%[2]d: connect: connection refused", pod, port)
	if !ok {
		return refused
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		return refused
	}
	k.addOpen(1)
	defer k.addOpen(-1)
	defer c.Close()
	go func() {
		defer c.Close()
		_, _ = io.Copy(c, stream)
	}()
	_, _ = io.Copy(stream, c)
	return nil
}

// Serve upgrades a request of the API server and forwards ports of a pod over it, by PortForward.
func (k *Kubelet) Serve(w http.ResponseWriter, r *http.Request, pod string) {
	portforward.ServePortForward(w, r, k, pod, "", nil, time.Minute, 10*time.Second, portforward.SupportedProtocols)
}
