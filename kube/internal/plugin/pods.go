package plugin

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// A target is a pod to record.
type target struct {
	cluster          *cluster
	pod              *corev1.Pod
	container        *corev1.Container
	isContainerNamed bool   // the user named the container
	path             string // path of the handlers; "" for the usual one
	port             int
	flight           bool
}

// listLimit bounds the length of a list from the API server, because a label may match a whole
// cluster.
const listLimit = 500

// selectTargets returns the running pods that the arguments name or the selector matches, sorted by name and at most limit. note reports how many
// were left out, "" for none. It is an error if none runs.
func (c *cluster) selectTargets(ctx context.Context, args []string, selector, container string, limit int) (targets []*target, note string, err error) {
	var pods []corev1.Pod
	if selector != "" {
		if pods, err = c.listPods(ctx, selector); err != nil {
			return nil, "", err
		}
	}
	for _, arg := range args {
		named, err := c.podsOf(ctx, arg)
		if err != nil {
			return nil, "", err
		}
		pods = append(pods, named...)
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	pods = slices.CompactFunc(pods, func(a, b corev1.Pod) bool { return a.Name == b.Name })
	var notRunning []string
	for i := range pods {
		p := &pods[i]
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			notRunning = append(notRunning, fmt.Sprintf("%s is %s", p.Name, podState(p)))
			continue
		}
		t, err := c.newTarget(p, container)
		if err != nil {
			return nil, "", err
		}
		targets = append(targets, t)
	}
	switch {
	case len(pods) == 0:
		return nil, "", fmt.Errorf("no pod in namespace %s matches %q: kubectl get pods -n %[1]s --show-labels lists them; -n names another namespace", c.namespace, selector)
	case len(targets) == 0:
		return nil, "", fmt.Errorf("no pod runs (%s): kubectl describe pod says why", shortText(strings.Join(notRunning, ", ")))
	case len(targets) > limit:
		note = fmt.Sprintf("%d pods run, these are the first %d by name: --max-pods takes more", len(targets), limit)
		targets = targets[:limit]
	}
	return targets, note, nil
}

// podState returns a pod's phase as text, with the reason if a container waits, or that it is being deleted.
func podState(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "being deleted"
	}
	for _, s := range p.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil && w.Reason != "" {
			return string(p.Status.Phase) + ", " + w.Reason
		}
	}
	return cmp.Or(string(p.Status.Phase), "not known")
}

// kindAliases maps kubectl's short names of kinds to their plurals.
var kindAliases = map[string]string{"po": "pods", "deploy": "deployments", "sts": "statefulsets", "ds": "daemonsets", "rs": "replicasets", "svc": "services"}

// podsOf returns the pods of an argument: POD, pod/POD, or those of a deployment, stateful set, daemon set, replica set or service. It is an error if
// there are none.
func (c *cluster) podsOf(ctx context.Context, arg string) ([]corev1.Pod, error) {
	kind, name, ok := strings.Cut(arg, "/")
	if !ok {
		kind, name = "pod", arg
	}
	var selector *metav1.LabelSelector
	var err error
	switch kind = cmp.Or(kindAliases[kind], strings.TrimSuffix(kind, "s")+"s"); kind {
	case "pods":
		p, err := c.core.Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, c.explainError(err, kind, name)
		}
		return []corev1.Pod{*p}, nil
	case "deployments":
		selector, err = selectorOf(ctx, name, c.apps.Deployments(c.namespace).Get, func(d *apps.Deployment) *metav1.LabelSelector { return d.Spec.Selector })
	case "statefulsets":
		selector, err = selectorOf(ctx, name, c.apps.StatefulSets(c.namespace).Get, func(s *apps.StatefulSet) *metav1.LabelSelector { return s.Spec.Selector })
	case "daemonsets":
		selector, err = selectorOf(ctx, name, c.apps.DaemonSets(c.namespace).Get, func(d *apps.DaemonSet) *metav1.LabelSelector { return d.Spec.Selector })
	case "replicasets":
		selector, err = selectorOf(ctx, name, c.apps.ReplicaSets(c.namespace).Get, func(r *apps.ReplicaSet) *metav1.LabelSelector { return r.Spec.Selector })
	case "services":
		selector, err = selectorOf(ctx, name, c.core.Services(c.namespace).Get, func(s *corev1.Service) *metav1.LabelSelector {
			return &metav1.LabelSelector{MatchLabels: s.Spec.Selector}
		})
	default:
		return nil, newUsageError("%q: write POD, or pod/, deployment/, statefulset/, daemonset/, replicaset/ or service/ and a name", arg)
	}
	if err != nil {
		return nil, c.explainError(err, kind, name)
	}
	match, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || match.Empty() {
		return nil, fmt.Errorf("%s selects no pods: name some by -l", arg)
	}
	pods, err := c.listPods(ctx, match.String())
	if err == nil && len(pods) == 0 {
		err = fmt.Errorf("%s has no pods: kubectl describe %s -n %s says why", arg, arg, c.namespace)
	}
	return pods, err
}

// selectorOf returns the label selector of a named object.
func selectorOf[T any](ctx context.Context, name string, get func(context.Context, string, metav1.GetOptions) (T, error), selector func(T) *metav1.LabelSelector) (*metav1.LabelSelector, error) {
	o, err := get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return selector(o), nil
}

// listPods returns at most listLimit pods of the namespace with these labels. Errors have advice.
func (c *cluster) listPods(ctx context.Context, selector string) ([]corev1.Pod, error) {
	if _, err := labels.Parse(selector); err != nil {
		return nil, newUsageError("-l %q: %v", selector, err)
	}
	list, err := c.core.Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: listLimit})
	if err != nil {
		return nil, c.explainError(err, "pods", "")
	}
	return list.Items, nil
}

// newTarget returns the pod as a target, with the named container, or, for "", the pod's default one. A missing container is an error.
func (c *cluster) newTarget(p *corev1.Pod, name string) (*target, error) {
	named := name != ""
	name = cmp.Or(name, p.Annotations["kubectl.kubernetes.io/default-container"], p.Spec.Containers[0].Name)
	i := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		var names []string
		for _, c := range p.Spec.Containers {
			names = append(names, c.Name)
		}
		return nil, fmt.Errorf("pod %s has no container %q, only %s", p.Name, name, strings.Join(names, ", "))
	}
	return &target{cluster: c, pod: p, container: &p.Spec.Containers[i], isContainerNamed: named, path: p.Annotations[pathAnnotation]}, nil
}

// containerStatus returns the status of the target's container in p; an empty one if p has none.
func (t *target) containerStatus(p *corev1.Pod) *corev1.ContainerStatus {
	i := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == t.container.Name })
	if i < 0 {
		return new(corev1.ContainerStatus)
	}
	return &p.Status.ContainerStatuses[i]
}

// selectContainer makes the container that declares the port the target's, unless the user named a container or none declares it.
func (t *target) selectContainer(port int) {
	for i := range t.pod.Spec.Containers {
		c := &t.pod.Spec.Containers[i]
		if !t.isContainerNamed && slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return int(p.ContainerPort) == port }) {
			t.container = c
		}
	}
}

// attributes describes the pod and its container with OpenTelemetry's names, without those that are empty.
func (t *target) attributes() map[string]string {
	out := map[string]string{
		"k8s.namespace.name":      t.pod.Namespace,
		"k8s.pod.name":            t.pod.Name,
		"k8s.pod.uid":             string(t.pod.UID),
		"k8s.node.name":           t.pod.Spec.NodeName,
		"k8s.container.name":      t.container.Name,
		"container.image.name":    t.container.Image,
		"k8s.container.cpu.limit": "none",
		"service.name":            t.pod.Labels["app.kubernetes.io/name"],
		"service.version":         t.pod.Labels["app.kubernetes.io/version"],
	}
	limits := t.container.Resources.Limits
	if r := t.containerStatus(t.pod).Resources; r != nil {
		limits = r.Limits // the present limits if the pod was resized
	}
	for name, q := range limits {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
			out["k8s.container."+string(name)+".limit"] = q.String()
		}
	}
	for k, v := range out {
		if v == "" {
			delete(out, k)
		}
	}
	return out
}

func (t *target) url(port int) string {
	return "http://" + net.JoinHostPort(t.pod.Name, strconv.Itoa(port))
}

// dial connects to the port of an address whose host is the pod's name.
func (t *target) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	return t.cluster.forward.dial(ctx, t.cluster.namespace, t.pod.Name, port)
}
