package prometheus

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

// The dashboard and the alert rules ask for metrics that the collectors have, or by alternatives of which they have one (the
// others are those of adapters/otel, which lab/grafana asks a real Prometheus for), and each alert has its runbook.
func TestDashboard(t *testing.T) {
	metrics := map[string]bool{}
	descs := make(chan *prometheus.Desc, 100)
	NewCollector(&probe.Probe{}, &tune.Tuner{}).Describe(descs)
	NewFlightCollector(nil).Describe(descs)
	close(descs)
	fq := regexp.MustCompile(`fqName: "(\w+)"`)
	for d := range descs {
		metrics[fq.FindStringSubmatch(d.String())[1]] = true
	}

	names := regexp.MustCompile(`whylate_\w+(\|whylate_\w+)*`)
	label := regexp.MustCompile(`whylate_(verdict|quota_(level|state)|flight_kind)\b`) // of adapters/otel
	for _, file := range []string{"dashboard.json", "rules.yml", "README.md"} {
		text, err := os.ReadFile("../../docs/grafana/" + file)
		if os.IsNotExist(err) {
			t.Skip("the module without its repository has no dashboard")
		}
		if err != nil {
			t.Fatal(err)
		}
		found := names.FindAllString(label.ReplaceAllString(string(text), ""), -1)
		if len(found) < 7 {
			t.Errorf("%s names %d metrics", file, len(found))
		}
		for _, alternatives := range found {
			if !slices.ContainsFunc(strings.Split(alternatives, "|"), func(name string) bool {
				for _, suffix := range []string{"_sum", "_count", "_bucket"} {
					if metrics[strings.TrimSuffix(name, suffix)] {
						return true
					}
				}
				return false
			}) {
				t.Errorf("%s asks for %s, which no collector has", file, alternatives)
			}
		}
		if strings.HasSuffix(file, ".json") && !json.Valid(text) {
			t.Errorf("%s is no JSON", file)
		}
	}

	rules, err := os.ReadFile("../../docs/grafana/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	runbooks, err := os.ReadFile("../../docs/grafana/README.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	for _, a := range alerts {
		if !strings.Contains(string(runbooks), "\n### "+a[1]+"\n") || !strings.Contains(string(rules), "README.md#"+strings.ToLower(a[1])+"\n") {
			t.Errorf("alert %s has no runbook", a[1])
		}
	}
	if len(alerts) == 0 {
		t.Error("there are no alerts")
	}
}
