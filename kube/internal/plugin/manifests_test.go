package plugin

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/whylate/whylate/internal/testing/must"
)

// TestManifests: Kubernetes' Go types have each field of the fleet's manifests in kustomize's output.
// The environment names the files.
func TestManifests(t *testing.T) {
	pattern := os.Getenv("WHYLATE_MANIFESTS")
	if pattern == "" {
		t.Skip("WHYLATE_MANIFESTS names no files: .ci/full programs makes them")
	}
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal(pattern, err)
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, file := range files {
		data := must.Have(os.ReadFile(file))(t)
		n := 0
		for documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(data))); ; n++ {
			text := make([]byte, len(data)+1)
			size, err := documents.Read(text)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(file, err)
			}
			object, _, err := strict.Decode(text[:size], nil, nil)
			if err != nil {
				t.Errorf("%s: %v\n%s", file, err, text[:size])
			}
			// Evictions fail where two budgets are for the same pods.
			if budget, ok := object.(*policyv1.PodDisruptionBudget); ok && budget.Spec.Selector.MatchLabels["app.kubernetes.io/component"] == "" {
				t.Errorf("%s: the budget %s is for pods of all roles", file, budget.Name)
			}
		}
		t.Logf("%s: %d objects", filepath.Base(file), n)
	}
}
