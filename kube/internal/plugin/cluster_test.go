//go:build linux

package plugin

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testchild"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/kube/internal/kubetest"
)

// TestCluster records through a real API server, which checks permissions, finds the pod's node, and
// forwards WebSockets to its kubelet. Of the kubelet there is only the streaming server, because pods
// need a dedicated machine; the services are processes here. The API server also checks every object
// of docs/kubernetes strictly against its schema.
func TestCluster(t *testing.T) {
	testfull.Need(t, "kube-apiserver and etcd, ten minutes to build")
	url := serveCluster(t)
	admin := client(t, url, "admin-token")

	kubelet := new(kubetest.Kubelet)
	node := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Source: pkg/kubelet/server/server.go, InstallStreamingHandlers.
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		if len(parts) < 3 || parts[0] != "portForward" || parts[1] != kubetest.Namespace {
			http.NotFound(w, r)
			return
		}
		kubelet.Serve(w, r, parts[2])
	}))
	t.Cleanup(node.Close)
	var port int32
	must.Have(fmt.Sscan(node.Listener.Addr().String()[len("127.0.0.1:"):], &port))(t)

	for _, file := range []string{"namespace.yaml", "role.yaml", "shop.yaml"} {
		for _, doc := range bytes.Split(must.Have(os.ReadFile("../../../docs/kubernetes/"+file))(t), []byte("\n---\n")) {
			create(t, admin, must.Have(yaml.YAMLToJSON(doc))(t))
		}
	}
	create(t, admin, rbacv1.RoleBinding{TypeMeta: kind("rbac.authorization.k8s.io/v1", "RoleBinding"), ObjectMeta: named("whylate"),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "whylate"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "ann"}}})
	create(t, admin, rbacv1.Role{TypeMeta: kind("rbac.authorization.k8s.io/v1", "Role"), ObjectMeta: named("reader"),
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}}})
	create(t, admin, rbacv1.RoleBinding{TypeMeta: kind("rbac.authorization.k8s.io/v1", "RoleBinding"), ObjectMeta: named("reader"),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "bob"}}})
	create(t, admin, corev1.Node{TypeMeta: kind("v1", "Node"), ObjectMeta: metav1.ObjectMeta{Name: "node-3"}})
	updateStatus(t, admin, "nodes", "", corev1.Node{TypeMeta: kind("v1", "Node"), ObjectMeta: metav1.ObjectMeta{Name: "node-3"}, Status: corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
	}})
	for _, name := range []string{"shop-1", "shop-2"} {
		p := pod(name)
		p.UID, p.Labels["app.kubernetes.io/name"] = "", "shop"
		no := false
		p.Spec.AutomountServiceAccountToken = &no
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(bool), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
		*p.Spec.SecurityContext.RunAsNonRoot = true
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
		create(t, admin, p)
		updateStatus(t, admin, "pods", kubetest.Namespace, p)
		address, stop, err := testchild.Start(testchild.Command("service "))
		must.Do(t, err)
		t.Cleanup(stop)
		kubelet.AddPort(name, 6060, address)
	}

	as := func(token string, args ...string) (status int, out, errText string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		config := kubetest.Kubeconfig(t, url, token)
		status = Run(t.Context(), append([]string{"--kubeconfig", config}, args...), Streams{strings.NewReader(""), &stdout, &stderr}, t.TempDir())
		return status, stdout.String(), stderr.String()
	}
	code, out, errText := as("ann-token", "svc/shop", "--seconds", "2", "--events")
	t.Logf("%s\n%s", errText, out)
	must.Equal(t, code, cli.ExitOK, "status")
	wantTexts(t, "the answer", out, "pod shop-1 in namespace shop on node node-3", "pod shop-2", "plugin.order", "on 2 of 2")
	for kubelet.OpenConnections() > 0 {
		time.Sleep(time.Millisecond)
	}
	code, out, errText = as("ann-token", "deploy/shop", "--watch", "--", "--plain", "--looks", "1")
	check.True(t, code == cli.ExitOK, "watching: status %d: %s", code, errText)
	wantTexts(t, "the screen", out, "plugin.order")
	for _, c := range []struct {
		token string
		args  []string
		want  []string
	}{
		{"ann-token", []string{"shop-9"}, []string{`no pod "shop-9"`}},
		{"ann-token", []string{"shop-1", "--port", "7"}, []string{"nothing listens on port 7 of pod shop-1"}},
		{"bob-token", []string{"shop-1"}, []string{"pods/portforward", "get and create"}},
		{"eve-token", []string{"shop-1"}, []string{"you may not read pods"}},
		{"nobody", []string{"shop-1"}, []string{"did not accept your credentials"}},
	} {
		code, _, errText := as(c.token, c.args...)
		check.Equal(t, code, cli.ExitFailed, "%s: %v: status", c.token, c.args)
		wantTexts(t, fmt.Sprint(c.token, c.args), errText, c.want...)
	}
}

func kind(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: kind}
}
func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: kubetest.Namespace}
}

// client returns a client of an API server.
func client(t *testing.T, url, token string) *rest.RESTClient {
	c := must.Have(clientcmd.BuildConfigFromFlags("", kubetest.Kubeconfig(t, url, token)))(t)
	c.NegotiatedSerializer, c.GroupVersion, c.APIPath = scheme.Codecs, &corev1.SchemeGroupVersion, "/api"
	return must.Have(rest.RESTClientFor(c))(t)
}

// create creates an object. Fields that are not in its schema are errors.
func create(t *testing.T, c *rest.RESTClient, object any) {
	t.Helper()
	var created struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
	}
	data, ok := object.([]byte)
	if !ok {
		data = must.Have(yaml.Marshal(object))(t)
		data = must.Have(yaml.YAMLToJSON(data))(t)
	}
	must.Do(t, yaml.Unmarshal(data, &created))
	path := "/apis/" + created.APIVersion
	if created.APIVersion == "v1" {
		path = "/api/v1"
	}
	if created.Kind != "Namespace" && created.Kind != "Node" {
		path += "/namespaces/" + kubetest.Namespace
	}
	if err := c.Post().AbsPath(path+"/"+strings.ToLower(created.Kind)+"s").Param("fieldValidation", "Strict").Body(data).Do(t.Context()).Error(); err != nil {
		t.Fatalf("creating %s %s: %v", created.Kind, created.Name, err)
	}
}

// updateStatus updates an object's status, as kubelets do.
func updateStatus(t *testing.T, c *rest.RESTClient, resource, namespace string, object any) {
	t.Helper()
	data := must.Have(yaml.YAMLToJSON(must.Have(yaml.Marshal(object))(t)))(t)
	var created struct {
		metav1.ObjectMeta `json:"metadata"`
	}
	must.Do(t, yaml.Unmarshal(data, &created))
	must.Do(t, c.Put().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(created.Name).SubResource("status").Body(data).Do(t.Context()).Error())
}

// serveCluster builds and starts etcd and kube-apiserver, which run until the test ends.
func serveCluster(t *testing.T) (url string) {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-ldflags=-s", "-o", dir, "./etcd", "./apiserver")
	build.Dir = "../../../lab/kube"
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	key := x509.MarshalPKCS1PrivateKey(must.Have(rsa.GenerateKey(rand.Reader, 2048))(t))
	must.Do(t, os.WriteFile(filepath.Join(dir, "key"), pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: key}), 0o600))
	must.Do(t, os.WriteFile(filepath.Join(dir, "tokens"), []byte("admin-token,admin,1,system:masters\nann-token,ann,2\nbob-token,bob,3\neve-token,eve,4\n"), 0o600))
	ports := must.Have(freeport.Find(3))(t)
	address := func(i int) string { return "127.0.0.1:" + ports[i] }
	start := func(name string, args ...string) {
		log := must.Have(os.Create(filepath.Join(dir, name+".log")))(t)
		cmd := exec.Command(filepath.Join(dir, name), args...)
		cmd.Stdout, cmd.Stderr = log, log
		must.Do(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			log.Close()
			if t.Failed() {
				output, _ := os.ReadFile(log.Name())
				t.Logf("%s said at the end:\n%s", name, output[max(0, len(output)-2000):])
			}
		})
	}
	start("etcd", "--data-dir="+filepath.Join(dir, "data"), "--listen-client-urls=http://"+address(0), "--advertise-client-urls=http://"+address(0), "--listen-peer-urls=http://"+address(1), "--log-level=error")
	start("apiserver", "--etcd-servers=http://"+address(0), "--bind-address=127.0.0.1", "--secure-port="+ports[2], "--cert-dir="+dir, "--authorization-mode=RBAC",
		"--token-auth-file="+filepath.Join(dir, "tokens"), "--service-account-issuer=https://test", "--service-account-signing-key-file="+filepath.Join(dir, "key"),
		"--service-account-key-file="+filepath.Join(dir, "key"), "--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount")
	url = "https://" + address(2)
	admin := client(t, url, "admin-token")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if output, err := admin.Get().AbsPath("/readyz").DoRaw(ctx); err == nil && string(output) == "ok" {
			return url
		}
		select {
		case <-ctx.Done():
			t.Fatal("the API server was not ready within a minute")
		case <-time.After(200 * time.Millisecond):
		}
	}
}
