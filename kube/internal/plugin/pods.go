package plugin

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// A cluster is what is asked of the API server, in one namespace.
type cluster struct {
	core      typedv1.CoreV1Interface
	apps      appsv1.AppsV1Interface
	forward   *forwarder
	namespace string
}

// A target is a pod that is recorded.
type target struct {
	c         *cluster
	pod       *corev1.Pod
	container *corev1.Container
	named     bool   // the container was named by the user
	path      string // of the handlers, "" for the usual one
	port      int
	flight    bool
}

// listed bounds what is asked for: a label may match a whole cluster.
const listed = 500

// pick returns the running pods that the arguments name or the selector matches, by name; note says what was left out.
func (c *cluster) pick(ctx context.Context, args []string, selector, container string, most int) (targets []*target, note string, err error) {
	var pods []corev1.Pod
	if selector != "" {
		if pods, err = c.list(ctx, selector); err != nil {
			return nil, "", err
		}
	}
	for _, arg := range args {
		more, err := c.named(ctx, arg)
		if err != nil {
			return nil, "", err
		}
		pods = append(pods, more...)
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	pods = slices.CompactFunc(pods, func(a, b corev1.Pod) bool { return a.Name == b.Name })
	var idle []string
	for i := range pods {
		p := &pods[i]
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			idle = append(idle, fmt.Sprintf("%s is %s", p.Name, state(p)))
			continue
		}
		t, err := c.target(p, container)
		if err != nil {
			return nil, "", err
		}
		targets = append(targets, t)
	}
	switch {
	case len(pods) == 0:
		return nil, "", fmt.Errorf("no pod in namespace %s matches %q: kubectl get pods -n %[1]s --show-labels lists them; -n names another namespace", c.namespace, selector)
	case len(targets) == 0:
		return nil, "", fmt.Errorf("no pod runs (%s): kubectl describe pod says why", short(strings.Join(idle, ", ")))
	case len(targets) > most:
		note = fmt.Sprintf("%d pods run, these are the first %d by name: --max-pods takes more", len(targets), most)
		targets = targets[:most]
	}
	return targets, note, nil
}

// state is a pod's phase, with the reason why a container does not run.
func state(p *corev1.Pod) string {
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

// kinds has the short names that kubectl knows.
var kinds = map[string]string{"po": "pods", "deploy": "deployments", "sts": "statefulsets", "ds": "daemonsets", "rs": "replicasets", "svc": "services"}

// named returns the pods that an argument means: POD, pod/POD, or those of a deployment, stateful set, daemon set, replica set or service.
func (c *cluster) named(ctx context.Context, arg string) ([]corev1.Pod, error) {
	kind, name, ok := strings.Cut(arg, "/")
	if !ok {
		kind, name = "pod", arg
	}
	var selector *metav1.LabelSelector
	var err error
	switch kind = cmp.Or(kinds[kind], strings.TrimSuffix(kind, "s")+"s"); kind {
	case "pods":
		p, err := c.core.Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, c.explain(err, kind, name)
		}
		return []corev1.Pod{*p}, nil
	case "deployments":
		selector, err = owner(ctx, name, c.apps.Deployments(c.namespace).Get, func(d *apps.Deployment) *metav1.LabelSelector { return d.Spec.Selector })
	case "statefulsets":
		selector, err = owner(ctx, name, c.apps.StatefulSets(c.namespace).Get, func(s *apps.StatefulSet) *metav1.LabelSelector { return s.Spec.Selector })
	case "daemonsets":
		selector, err = owner(ctx, name, c.apps.DaemonSets(c.namespace).Get, func(d *apps.DaemonSet) *metav1.LabelSelector { return d.Spec.Selector })
	case "replicasets":
		selector, err = owner(ctx, name, c.apps.ReplicaSets(c.namespace).Get, func(r *apps.ReplicaSet) *metav1.LabelSelector { return r.Spec.Selector })
	case "services":
		selector, err = owner(ctx, name, c.core.Services(c.namespace).Get, func(s *corev1.Service) *metav1.LabelSelector {
			return &metav1.LabelSelector{MatchLabels: s.Spec.Selector}
		})
	default:
		return nil, wrongUse("%q: write POD, or pod/, deployment/, statefulset/, daemonset/, replicaset/ or service/ and a name", arg)
	}
	if err != nil {
		return nil, c.explain(err, kind, name)
	}
	match, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || match.Empty() {
		return nil, fmt.Errorf("%s selects no pods: name some by -l", arg)
	}
	pods, err := c.list(ctx, match.String())
	if err == nil && len(pods) == 0 {
		err = fmt.Errorf("%s has no pods: kubectl describe %s -n %s says why", arg, arg, c.namespace)
	}
	return pods, err
}

// owner returns by which labels a named object selects its pods.
func owner[T any](ctx context.Context, name string, get func(context.Context, string, metav1.GetOptions) (T, error), of func(T) *metav1.LabelSelector) (*metav1.LabelSelector, error) {
	o, err := get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return of(o), nil
}

func (c *cluster) list(ctx context.Context, selector string) ([]corev1.Pod, error) {
	if _, err := labels.Parse(selector); err != nil {
		return nil, wrongUse("-l %q: %v", selector, err)
	}
	list, err := c.core.Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: listed})
	if err != nil {
		return nil, c.explain(err, "pods", "")
	}
	return list.Items, nil
}

// explain says what an answer of the API server means, and what to do.
func (c *cluster) explain(err error, kind, name string) error {
	text := line(err)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no %s %q in namespace %s: kubectl get %[4]s -n %[3]s lists them; -n names another namespace", strings.TrimSuffix(kind, "s"), name, c.namespace, kind)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not read %s in namespace %s (%s): ask for the verbs get and list on them (docs/kubernetes.md has the Role)", kind, c.namespace, text)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the cluster did not accept your credentials (%s): log in again", text)
	}
	return fmt.Errorf("asking the cluster for %s: %s: does kubectl get pods work?", kind, text)
}

// target finds the container of a pod that is meant.
func (c *cluster) target(p *corev1.Pod, name string) (*target, error) {
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
	return &target{c: c, pod: p, container: &p.Spec.Containers[i], named: named, path: p.Annotations[pathAnnotation]}, nil
}

// status is what the kubelet says of the container in an answer about its pod.
func (t *target) status(p *corev1.Pod) *corev1.ContainerStatus {
	i := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == t.container.Name })
	if i < 0 {
		return new(corev1.ContainerStatus)
	}
	return &p.Status.ContainerStatuses[i]
}

// serves takes the container that declares a port as the one that is meant, unless it was named.
func (t *target) serves(port int) {
	for i := range t.pod.Spec.Containers {
		c := &t.pod.Spec.Containers[i]
		if !t.named && slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return int(p.ContainerPort) == port }) {
			t.container = c
		}
	}
}

// about is what the cluster says of a pod, with OpenTelemetry's names.
func (t *target) about() map[string]string {
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
	if r := t.status(t.pod).Resources; r != nil {
		limits = r.Limits // what the kubelet has set, where a pod was resized
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

// dial connects to the port of an address; its host is the pod's name.
func (t *target) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	return t.c.forward.dial(ctx, t.c.namespace, t.pod.Name, port)
}

const (
	// goneWithin is how long kubelets take to say that a container ended.
	goneWithin = 3 * time.Second
	goneEvery  = 300 * time.Millisecond
)

// gone returns what became of the container, if it is no longer the one that was recorded.
func (t *target) gone(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, goneWithin)
	defer cancel()
	for {
		p, err := t.c.core.Pods(t.c.namespace).Get(ctx, t.pod.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("pod %s was deleted while it was recorded", t.pod.Name)
		case err != nil:
		case p.UID != t.pod.UID:
			return fmt.Sprintf("pod %s was replaced while it was recorded", t.pod.Name)
		case p.DeletionTimestamp != nil:
			return fmt.Sprintf("pod %s is being deleted", t.pod.Name)
		default:
			if s := t.status(p); s.RestartCount > t.status(t.pod).RestartCount || s.State.Terminated != nil {
				return fmt.Sprintf("container %s of pod %s ended while it was recorded%s: kubectl logs --previous has its last lines", t.container.Name, t.pod.Name, ending(s))
			}
		}
		select {
		case <-ctx.Done():
			return ""
		case <-time.After(goneEvery):
		}
	}
}

func ending(s *corev1.ContainerStatus) string {
	end := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
	if end == nil {
		return ""
	}
	return fmt.Sprintf(" (%s, exit status %d)", cmp.Or(end.Reason, "no reason given"), end.ExitCode)
}

// An event is one of Kubernetes about a pod.
type event struct {
	Time    time.Time `json:"time"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int32     `json:"count,omitempty"`
}

const (
	maxEvents   = 10
	eventsSince = time.Hour
)

// events returns the last events of the pod, oldest first.
func (t *target) events(ctx context.Context) ([]event, error) {
	list, err := t.c.core.Events(t.c.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(t.pod.UID), Limit: listed})
	if err != nil {
		return nil, t.c.explain(err, "events", "")
	}
	var out []event
	for _, e := range list.Items {
		at := cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
		if e.Series != nil {
			at = e.Series.LastObservedTime.Time
		}
		if time.Since(at) < eventsSince {
			out = append(out, event{at.UTC(), short(e.Reason), short(e.Message), e.Count})
		}
	}
	slices.SortFunc(out, func(a, b event) int { return a.Time.Compare(b.Time) })
	return out[max(0, len(out)-maxEvents):], nil
}
