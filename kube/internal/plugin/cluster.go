package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/whylate/whylate/internal/cli"
)

// A cluster has the clients of the API server for one namespace.
type cluster struct {
	core      typedv1.CoreV1Interface
	apps      appsv1.AppsV1Interface
	forward   *forwarder
	namespace string
}

// explainError returns an error of the API server with advice. It is about the objects of a kind in the plural, such as pods,
// or about the one with this name.
func (c *cluster) explainError(err error, kind, name string) error {
	text := lineText(err)
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

// clusterFlags adds kubectl's flags that select the cluster and the user.
func clusterFlags(flags *pflag.FlagSet) clientcmd.ClientConfig {
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), new(clientcmd.ConfigOverrides)
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "file with clusters and users (default: KUBECONFIG, else ~/.kube/config)")
	clientcmd.BindOverrideFlags(overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// connect returns the clients of the cluster that a kubeconfig names. It sends nothing.
func connect(config clientcmd.ClientConfig) (*cluster, error) {
	rc, err := config.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is configured: set KUBECONFIG, or give --kubeconfig or --context")
	} else if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	rc.UserAgent = "kubectl-whylate/" + cli.Version()
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// Both clients share one HTTP client and its connections.
	client, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("using the kubeconfig: %w", err)
	}
	core, err := typedv1.NewForConfigAndClient(rc, client)
	if err != nil {
		return nil, fmt.Errorf("using the kubeconfig: %w", err)
	}
	apps, err := appsv1.NewForConfigAndClient(rc, client)
	if err != nil {
		return nil, fmt.Errorf("using the kubeconfig: %w", err)
	}
	return &cluster{core, apps, &forwarder{rc, core.RESTClient()}, namespace}, nil
}
