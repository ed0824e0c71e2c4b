// Package manifests checks the files by which a fleet is installed: Helm's own packages lint and render the chart, kustomize's
// build the manifests, and both must be the same objects, with fields that Kubernetes' Go types know. Compose's loader reads
// the compose file.
package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	chartloader "helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	documents "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

var update = flag.Bool("update", false, "rewrite golden files")

const (
	fleet = "../../fleet"
	chart = fleet + "/helm"
)

// TestChart: the chart with its defaults, and with each file of examples, is what the manifests of that name are.
func TestChart(t *testing.T) {
	for _, name := range []string{"all-in-one", "scrape", "clickhouse", "roles"} {
		t.Run(name, func(t *testing.T) {
			values := map[string]any{}
			if name != "all-in-one" {
				must.Do(t, yaml.UnmarshalStrict(must.Have(os.ReadFile(chart+"/examples/"+name+".yaml"))(t), &values))
			}
			for _, m := range lint.RunAll(chart, values, "whylate").Messages {
				check.True(t, m.Severity <= support.InfoSev, "%v", m)
			}
			want := objects(t, kustomized(t, name))
			delete(want, "Namespace whylate") // helm install --create-namespace
			got := objects(t, rendered(t, values))
			for _, name := range slices.Sorted(maps.Keys(want)) {
				check.Equal(t, got[name], want[name], "%s", name)
				delete(got, name)
			}
			check.True(t, len(want) > 2 && len(got) == 0, "%d objects in the manifests, only in the chart: %v", len(want), slices.Collect(maps.Keys(got)))
		})
	}
}

// TestOptions renders what the manifests do not have.
func TestOptions(t *testing.T) {
	var values map[string]any
	must.Do(t, yaml.UnmarshalStrict(must.Have(os.ReadFile("testdata/options.yaml"))(t), &values))
	text := rendered(t, values)
	objects(t, text)
	must.Golden(t, *update, "testdata/options.txt", text)
}

// TestRefusedValues: a misspelt value is an error, not a default.
func TestRefusedValues(t *testing.T) {
	for value, want := range map[string]string{
		"storage: {Size: 1Gi}":   "'Size' not allowed",
		"flags: {min-free: 4}":   "got number, want string",
		"roles: {enabled: yes!}": "want boolean",
		"scrapes: {}":            "'scrapes' not allowed",
	} {
		var values map[string]any
		must.Do(t, yaml.Unmarshal([]byte(value), &values))
		_, err := render(t, values)
		check.True(t, err != nil && strings.Contains(err.Error(), want), "%s: %v, want %q", value, err, want)
	}
}

// TestCompose: the compose file is valid, publishes on loopback only, and gives flags that the fleet has.
func TestCompose(t *testing.T) {
	file := fleet + "/compose.yaml"
	project := must.Have(loader.LoadWithContext(t.Context(), types.ConfigDetails{WorkingDir: fleet, ConfigFiles: []types.ConfigFile{{Filename: file}}, Environment: types.Mapping{}},
		loader.WithProfiles([]string{"*"})))(t)
	check.Equal(t, len(project.Services), 2, "services")
	flags := flagNames(t)
	for name, service := range project.Services {
		for _, p := range service.Ports {
			check.Equal(t, p.HostIP, "127.0.0.1", "%s: address of port %s", name, p.Published)
		}
		for variable := range service.Environment {
			if flag, ok := strings.CutPrefix(variable, "WHYLATE_FLEET_"); ok {
				check.True(t, flags["-"+strings.ReplaceAll(strings.ToLower(flag), "_", "-")], "%s: no flag is %s", name, variable)
			}
		}
	}
}

// kustomized builds fleet/manifests/NAME.
func kustomized(t *testing.T, name string) []byte {
	built := must.Have(krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path.Join(fleet, "manifests", name)))(t)
	return must.Have(built.AsYaml())(t)
}

// rendered renders the chart, as release whylate-fleet in the namespace whylate.
func rendered(t *testing.T, values map[string]any) []byte {
	t.Helper()
	return must.Have(render(t, values))(t)
}

// render returns all objects of the chart, in the order of the templates' names.
func render(t *testing.T, values map[string]any) ([]byte, error) {
	c := must.Have(chartloader.LoadDir(chart))(t)
	renderValues, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: "whylate-fleet", Namespace: "whylate", IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(t.Context(), c, renderValues)
	var all bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) == ".yaml" && strings.TrimSpace(files[name]) != "" {
			fmt.Fprintf(&all, "---\n%s\n", strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(files[name]), "---\n")))
		}
	}
	return all.Bytes(), err
}

// objects returns the objects of a text by kind and name, without what kustomize and Helm write differently. All fields must be
// those of the objects' Go types.
func objects(t *testing.T, text []byte) map[string]string {
	t.Helper()
	types := runtime.NewScheme()
	must.Do(t, scheme.AddToScheme(types))
	must.Do(t, monitoringv1.AddToScheme(types))
	strict := serializer.NewCodecFactory(types, serializer.EnableStrict).UniversalDeserializer()
	flags := flagNames(t)
	all := map[string]string{}
	for split := documents.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text))); ; {
		document := make([]byte, len(text)+1)
		size, err := split.Read(document)
		if errors.Is(err, io.EOF) {
			return all
		}
		must.Do(t, err)
		document = document[:size]
		object, _, err := strict.Decode(document, nil, nil)
		must.Do(t, err, string(document))
		// Evictions fail where two budgets are for the same pods.
		if budget, ok := object.(*policyv1.PodDisruptionBudget); ok {
			check.True(t, budget.Spec.Selector.MatchLabels["app.kubernetes.io/component"] != "", "the budget %s is for pods of all roles", budget.Name)
		}
		var fields map[string]any
		must.Do(t, json.Unmarshal(must.Have(json.Marshal(object))(t), &fields))
		metadata := fields["metadata"].(map[string]any)
		delete(metadata, "namespace")
		delete(metadata, "labels")
		fields = normalized(t, fields, flags).(map[string]any)
		name := fmt.Sprint(fields["kind"], " ", fields["metadata"].(map[string]any)["name"])
		check.Equal(t, all[name], "", "%s twice", name)
		all[name] = string(must.Have(yaml.Marshal(fields))(t))
	}
}

var (
	contentHash = regexp.MustCompile(`^(whylate-fleet\b.*-scrape)-[a-z0-9]{10}$`)
	flagRow     = regexp.MustCompile("(?m)^\\| `(-[a-z0-9-]+)`")
	argument    = regexp.MustCompile(`^(-[a-z0-9-]+)(=.+)?$`)
)

// normalized returns a field's value without the image, the release's label, and names that are made for uniqueness: kustomize's
// of ConfigMaps, and the chart's of a cluster's roles. Arguments are flags of the fleet, in any order, and the verb.
func normalized(t *testing.T, value any, flags map[string]bool) any {
	switch value := value.(type) {
	case map[string]any:
		for _, k := range []string{"app.kubernetes.io/instance", "checksum/scrape", "image"} {
			delete(value, k)
		}
		for k, v := range value {
			if k == "args" {
				args := v.([]any)
				check.Equal(t, args[len(args)-1], "serve", "verb")
				slices.SortFunc(args, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
				for _, a := range args {
					m := argument.FindStringSubmatch(a.(string))
					check.True(t, a == "serve" || m != nil && flags[m[1]], "the fleet has no flag %s", a)
				}
			}
			if text, ok := v.(string); ok && k == "scrape.yaml" {
				must.Do(t, yaml.Unmarshal([]byte(text), &v))
			}
			if value[k] = normalized(t, v, flags); k == "annotations" && len(value[k].(map[string]any)) == 0 {
				delete(value, k)
			}
		}
	case []any:
		for i := range value {
			value[i] = normalized(t, value[i], flags)
		}
	case string:
		return strings.Replace(contentHash.ReplaceAllString(value, "$1"), "whylate:", "", 1)
	}
	return value
}

// flagNames returns the fleet's flags.
func flagNames(t *testing.T) map[string]bool {
	names := map[string]bool{}
	for _, m := range flagRow.FindAllSubmatch(must.Have(os.ReadFile("../../docs/fleet-flags.md"))(t), -1) {
		names[string(m[1])] = true
	}
	must.True(t, len(names) > 20, "%d flags in fleet-flags.md", len(names))
	return names
}
