package plugin

import (
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// agentCapabilities are what recording a process from outside and the kernel's events need (docs/pid.md, docs/kernel.md), and the
// names of kernel functions.
var agentCapabilities = []corev1.Capability{"BPF", "PERFMON", "SYS_PTRACE", "SYSLOG"}

// maxAgentSeconds bounds a recording from outside.
const maxAgentSeconds = 30

// writeAgents writes for each target a pod that explains its container from the node, so that no endpoint is needed. The plugin
// creates none: who may run such pods is for the cluster to decide.
func (r *run) writeAgents(w io.Writer, targets []*target) error {
	for _, t := range targets {
		agent, err := r.agentOf(t)
		if err != nil {
			return err
		}
		data, err := yaml.Marshal(agent)
		if err != nil {
			return fmt.Errorf("writing the pod: %w", err)
		}
		fmt.Fprintf(w, "# kubectl apply -f FILE; kubectl logs -f -n %s %s | whylate report -; then kubectl delete -f FILE\n%s---\n", agent.Namespace, agent.Name, data)
	}
	return nil
}

// agentOf returns the pod that explains a target's container from its node.
func (r *run) agentOf(t *target) (*corev1.Pod, error) {
	id := ""
	for _, s := range t.pod.Status.ContainerStatuses {
		if s.Name == t.container.Name {
			_, id, _ = strings.Cut(s.ContainerID, "://")
		}
	}
	if id == "" || t.pod.Spec.NodeName == "" {
		return nil, fmt.Errorf("pod %s: the cluster does not name the node and the identifier of container %s", t.pod.Name, t.container.Name)
	}
	seconds := 3
	if r.hasSeconds {
		seconds = min(r.seconds, maxAgentSeconds)
	}
	args := []string{"explain", "--json", "--pid", "container:" + id, "-d", fmt.Sprintf("%ds", seconds)}
	if r.kernel {
		args = append(args, "--kernel")
	}
	root, no, yes, deadline := int64(0), false, true, int64(seconds+120)
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "whylate-" + t.pod.Name, Namespace: t.pod.Namespace},
		Spec: corev1.PodSpec{
			NodeName: t.pod.Spec.NodeName, HostPID: true, RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: &deadline,
			AutomountServiceAccountToken: &no, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "whylate", Image: r.nodeAgent, Args: append(args, r.passedArgs...),
				SecurityContext: &corev1.SecurityContext{
					RunAsUser: &root, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: agentCapabilities},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
			}},
			Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}, nil
}
