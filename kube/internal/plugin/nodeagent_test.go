//go:build linux

package plugin

import (
	"bytes"
	"flag"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/kube/internal/kubetest"
)

var update = flag.Bool("update", false, "rewrite the files of testdata")

// checkGolden compares a text with a file of testdata.
func checkGolden(t *testing.T, file, text string) {
	t.Helper()
	must.Golden(t, *update, "testdata/"+file, []byte(text))
}

// TestHelp: the help has the flags and their defaults.
func TestHelp(t *testing.T) {
	var out bytes.Buffer
	t.Setenv("HOME", "/home")
	check.Equal(t, Run(t.Context(), []string{"-h"}, Streams{nil, &out, nil}, ""), cli.ExitOK, "status")
	own, _, _ := strings.Cut(out.String(), "      --as string") // the rest is kubectl's
	checkGolden(t, "help.txt", own)
}

// TestNodeAgent: the printed pods are those of testdata/agents.yaml, and whylate takes their arguments.
func TestNodeAgent(t *testing.T) {
	api := new(kubetest.API)
	p := pod("shop-1")
	id := strings.Repeat("0123456789abcdef", 4)
	p.Status.ContainerStatuses[0].ContainerID = "containerd://" + id
	api.PutPod(p)
	var all strings.Builder
	for _, args := range [][]string{{"--seconds", "31", "--", "--group", "order"}, {"--kernel"}} {
		status, out, stderr := call(t, t.Context(), api, append([]string{"shop-1", "--node-agent", "registry.example/whylate:v1"}, args...)...)
		must.True(t, status == cli.ExitOK, "status %d: %s", status, stderr)
		all.WriteString(out)
	}
	checkGolden(t, "agents.yaml", all.String()) // review a change of it as a change of rights
	var agent corev1.Pod
	_, second, _ := strings.Cut(all.String(), "---\n")
	must.Do(t, yaml.UnmarshalStrict([]byte(strings.TrimSuffix(second, "---\n")), &agent))
	c := &agent.Spec.Containers[0]
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
