//go:build linux

package plugin

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/kube/internal/kubetest"
)

// TestNodeAgent: the printed pod runs on the node of the service's pod, names its container, asks for the capabilities that are
// documented and no more, and whylate takes its arguments.
func TestNodeAgent(t *testing.T) {
	api := new(kubetest.API)
	p := pod("shop-1")
	id := strings.Repeat("0123456789abcdef", 4)
	p.Status.ContainerStatuses[0].ContainerID = "containerd://" + id
	api.PutPod(p)
	status, out, stderr := call(t, t.Context(), api, "shop-1", "--node-agent", "registry.example/whylate:v1", "--kernel")
	if status != cli.ExitOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	var agent corev1.Pod
	must.Do(t, yaml.UnmarshalStrict([]byte(strings.TrimSuffix(out, "---\n")), &agent))
	c := &agent.Spec.Containers[0]
	if agent.Spec.NodeName != "node-3" || !agent.Spec.HostPID || agent.Namespace != p.Namespace || c.Image != "registry.example/whylate:v1" || *agent.Spec.ActiveDeadlineSeconds > 600 {
		t.Errorf("%s", out)
	}
	if !slices.Equal(c.SecurityContext.Capabilities.Add, agentCapabilities) || c.SecurityContext.Privileged != nil || !slices.Contains(c.Args, "container:"+id) || !slices.Contains(c.Args, "--kernel") {
		t.Errorf("%s", out)
	}
	var answer, problem bytes.Buffer
	if status := cli.Run(t.Context(), c.Args, strings.NewReader(""), &answer, &problem); status != cli.ExitUsage || !strings.Contains(problem.String(), "no process here is in a control group of container "+id) {
		t.Errorf("status %d: %s", status, problem.String())
	}
	p.Status.ContainerStatuses[0].ContainerID = ""
	api.PutPod(p)
	for text, args := range map[string][]string{
		"does not name the node": {"shop-1", "--node-agent", "x"},
		"add --node-agent IMAGE": {"shop-1", "--kernel"},
		"goes with none of":      {"shop-1", "--node-agent", "x", "--watch"},
	} {
		if status, _, stderr := call(t, t.Context(), api, args...); status == cli.ExitOK || !strings.Contains(stderr, text) {
			t.Errorf("%q: status %d: %s", args, status, stderr)
		}
	}
}
