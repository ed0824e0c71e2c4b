package prometheus

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

// The dashboard and the alert rules ask for metrics that the collectors have, and each alert has its runbook.
func TestDashboard(t *testing.T) {
	known := map[string]bool{}
	descs := make(chan *prometheus.Desc, 100)
	NewCollector(&probe.Probe{}, &tune.Tuner{}).Describe(descs)
	NewFlightCollector(nil).Describe(descs)
	close(descs)
	fq := regexp.MustCompile(`fqName: "(\w+)"`)
	for d := range descs {
		known[fq.FindStringSubmatch(d.String())[1]] = true
	}

	names := regexp.MustCompile(`whylate_\w+`)
	for _, file := range []string{"dashboard.json", "rules.yml", "README.md"} {
		text, err := os.ReadFile("../../docs/grafana/" + file)
		if os.IsNotExist(err) {
			t.Skip("the module without its repository has no dashboard")
		}
		if err != nil {
			t.Fatal(err)
		}
		found := names.FindAllString(string(text), -1)
		if len(found) < 7 {
			t.Errorf("%s names %d metrics", file, len(found))
		}
		for _, name := range found {
			base := name
			for _, suffix := range []string{"_sum", "_count", "_bucket"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !known[name] && !known[base] {
				t.Errorf("%s asks for %s, which no collector has", file, name)
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
