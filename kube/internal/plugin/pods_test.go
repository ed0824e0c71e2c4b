//go:build linux

package plugin

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/kube/internal/kubetest"
)

// connectTo returns the cluster behind an API.
func connectTo(t *testing.T, api *kubetest.API) *cluster {
	return must.Have(connect(clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: api.Config(t)}, nil)))(t)
}

// TestSelectTargets: which pods arguments and a selector select, once each, in order of their names.
func TestSelectTargets(t *testing.T) {
	labels, now := map[string]string{"app": "shop"}, metav1.Now()
	api := &kubetest.API{Selectors: map[string]map[string]string{"services/none": {"app": "none"}, "services/empty": {}}}
	for _, kind := range []string{"deployments", "statefulsets", "daemonsets", "replicasets", "services"} {
		api.Selectors[kind+"/shop"] = labels
	}
	for _, name := range []string{"shop-2", "shop-1", "shop-3"} {
		api.PutPod(pod(name))
	}
	for name, change := range map[string]func(*corev1.Pod){
		"bank-1": func(p *corev1.Pod) {}, "bank-2": func(p *corev1.Pod) { p.DeletionTimestamp = &now }, "bank-3": func(p *corev1.Pod) { p.Status = corev1.PodStatus{} },
	} {
		p := pod(name)
		p.Labels = map[string]string{"app": "bank"}
		change(p)
		api.PutPod(p)
	}
	c := connectTo(t, api)
	for _, test := range []struct {
		args, selector, want string
	}{
		{"shop-2", "", "shop-2"}, {"pod/shop-2 pods/shop-1 po/shop-1 shop-2", "", "shop-1 shop-2"}, {"bank-1", "app=shop", "bank-1 shop-1 (4 pods run, these are the first 2 by name: --max-pods takes more)"},
		{"deployment/shop", "", "shop-1 shop-2 (3 pods run"}, {"deploy/shop", "", "shop-1 shop-2 (3 pods run"}, {"statefulset/shop", "", "shop-1 shop-2 (3 pods run"}, {"sts/shop", "", "shop-1 shop-2 (3 pods run"},
		{"ds/shop", "", "shop-1 shop-2 (3 pods run"}, {"rs/shop", "", "shop-1 shop-2 (3 pods run"}, {"svc/shop", "", "shop-1 shop-2 (3 pods run"}, {"", "app=bank", "bank-1"},
		{"svc/none", "", "error: svc/none has no pods"}, {"svc/empty", "", "error: svc/empty selects no pods"}, {"svc/other", "", `error: there is no service "other" in namespace shop`}, {"job/x", "", `error: "job/x": write POD`},
		{"bank-2", "", "error: no pod runs (bank-2 is being deleted)"}, {"bank-3", "", "error: no pod runs (bank-3 is not known)"}, {"", "app=none", `error: no pod in namespace shop matches "app=none"`},
	} {
		targets, note, err := c.selectTargets(t.Context(), strings.Fields(test.args), test.selector, "", 2)
		var got []string
		for _, target := range targets {
			got = append(got, target.pod.Name)
		}
		if note != "" {
			got = append(got, "("+note+")")
		}
		if err != nil {
			got = append(got, "error:", err.Error())
		}
		check.True(t, strings.HasPrefix(strings.Join(got, " "), test.want) && (note != "") == strings.Contains(test.want, " pods run"), "%s -l %q: %q, want %q", test.args, test.selector, got, test.want)
	}
}

// TestExplainEnd: why a recorded container no longer runs.
func TestExplainEnd(t *testing.T) {
	now, ended := metav1.Now(), corev1.ContainerStateTerminated{ExitCode: 2}
	for want, change := range map[string]func(*corev1.Pod){
		"pod x was deleted while it was recorded":  func(p *corev1.Pod) { p.Name = "y" },
		"pod x was replaced while it was recorded": func(p *corev1.Pod) { p.UID = "other" },
		"pod x is being deleted":                   func(p *corev1.Pod) { p.DeletionTimestamp = &now },
		"container app of pod x ended while it was recorded (no reason given, exit status 2): kubectl logs --previous has its last lines": func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated = &ended
		},
		"container app of pod x ended while it was recorded: kubectl logs --previous has its last lines": func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ },
	} {
		api, p := new(kubetest.API), pod("x")
		change(p)
		api.PutPod(p)
		tg := must.Have(connectTo(t, api).newTarget(pod("x"), ""))(t)
		check.Equal(t, tg.explainEnd(t.Context()), want, "reason")
	}
}

// TestAttributes: the attributes of a pod, without unknown ones.
func TestAttributes(t *testing.T) {
	p := pod("x")
	p.Labels = map[string]string{"app.kubernetes.io/name": "shop"}
	p.Spec.Containers[0].Resources.Limits["cpu"], p.Spec.Containers[0].Resources.Limits["memory"] = resource.MustParse("2"), resource.MustParse("1Gi")
	p.Spec.Containers[0].Resources.Limits["ephemeral-storage"] = resource.MustParse("1Gi")
	tg := must.Have(new(cluster).newTarget(p, ""))(t)
	want := map[string]string{"k8s.namespace.name": "shop", "k8s.pod.name": "x", "k8s.pod.uid": "uid-x", "k8s.node.name": "node-3", "k8s.container.name": "app", "container.image.name": "registry.example/shop:v2",
		"k8s.container.cpu.limit": "2", "k8s.container.memory.limit": "1Gi", "service.name": "shop"}
	check.True(t, maps.Equal(tg.attributes(), want), "%v", tg.attributes())
}

// TestForwardError: each failure to reach a port has its kind and advice.
func TestForwardError(t *testing.T) {
	for text, want := range map[string]string{
		`pods "x" is Forbidden`:                     string(record.Forbidden) + ": forwarding to port 1 of pod x failed (pods \"x\" is Forbidden): ask for the verbs get and create on pods/portforward",
		"dial tcp4: Connection refused":             string(record.Refused) + ": nothing listens on port 1 of pod x: name the port",
		"exit status 1: socat: the peer refused it": string(record.Refused) + ": nothing listens on port 1 of pod x: name the port",
		"the peer refused it":                       string(record.Unreachable) + ": forwarding to port 1 of pod x failed (the peer refused it): does kubectl port-forward work?",
		"socat is missing":                          string(record.Unreachable) + ": forwarding to port 1 of pod x failed (socat is missing): does kubectl port-forward work?",
		"pod not found":                             string(record.Unreachable) + ": forwarding to port 1 of pod x failed (pod not found): the pod may have been replaced",
		"Unauthorized":                              string(record.Unauthorized) + ": forwarding to port 1 of pod x failed (Unauthorized): the cluster did not accept your credentials",
		"you must be logged in":                     string(record.Unauthorized) + ": forwarding to port 1 of pod x failed (you must be logged in): the cluster did not accept your credentials",
	} {
		e := forwardError("x", "1", text)
		got := fmt.Sprintf("%s: %s: %s", e.Kind, e.Text, e.Remedy)
		check.True(t, strings.HasPrefix(got, want), "%q, want %q", got, want)
	}
}
