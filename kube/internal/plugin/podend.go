package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// endTimeout bounds the wait for a kubelet to report the end of a container.
	endTimeout      = 3 * time.Second
	endPollInterval = 300 * time.Millisecond
)

// explainEnd returns why the recorded container no longer runs, "" if it still runs.
func (t *target) explainEnd(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for {
		p, err := t.cluster.core.Pods(t.cluster.namespace).Get(ctx, t.pod.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("pod %s was deleted while it was recorded", t.pod.Name)
		case err != nil:
		case p.UID != t.pod.UID:
			return fmt.Sprintf("pod %s was replaced while it was recorded", t.pod.Name)
		case p.DeletionTimestamp != nil:
			return fmt.Sprintf("pod %s is being deleted", t.pod.Name)
		default:
			if s := t.containerStatus(p); s.RestartCount > t.containerStatus(t.pod).RestartCount || s.State.Terminated != nil {
				return fmt.Sprintf("container %s of pod %s ended while it was recorded%s: kubectl logs --previous has its last lines", t.container.Name, t.pod.Name, exitText(s))
			}
		}
		select {
		case <-ctx.Done():
			return ""
		case <-time.After(endPollInterval):
		}
	}
}

// exitText returns how a container ended, now or the last time: " (OOMKilled, exit status 137)", with the space, to follow a
// word; "" if it never ended.
func exitText(s *corev1.ContainerStatus) string {
	end := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
	if end == nil {
		return ""
	}
	return fmt.Sprintf(" (%s, exit status %d)", cmp.Or(end.Reason, "no reason given"), end.ExitCode)
}

// An event is a Kubernetes event about a pod.
type event struct {
	Time    time.Time `json:"time"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int32     `json:"count,omitempty"`
}

const (
	maxEvents   = 10
	maxEventAge = time.Hour
)

// events returns the events of the pod from the last maxEventAge, at most the latest maxEvents, the oldest first.
func (t *target) events(ctx context.Context) ([]event, error) {
	list, err := t.cluster.core.Events(t.cluster.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(t.pod.UID), Limit: listLimit})
	if err != nil {
		return nil, t.cluster.explainError(err, "events", "")
	}
	var out []event
	for _, e := range list.Items {
		lastSeen := cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
		if e.Series != nil {
			lastSeen = e.Series.LastObservedTime.Time
		}
		if time.Since(lastSeen) < maxEventAge {
			out = append(out, event{lastSeen.UTC(), shortText(e.Reason), shortText(e.Message), e.Count})
		}
	}
	slices.SortFunc(out, func(a, b event) int { return a.Time.Compare(b.Time) })
	return out[max(0, len(out)-maxEvents):], nil
}
