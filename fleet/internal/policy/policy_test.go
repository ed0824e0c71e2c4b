package policy

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/must"
)

const example = `owners:
  - {service: "shop-*", owner: team-shop}
  - {service: pay, owner: "#pay on chat"}
mutes:
  - {service: pay, rule: WL1007, site: "main.(*journal).append*", until: 2027-01-31, reason: the journal is replaced in January}
  - {rule: WL4003, environment: test, until: "2027-01-31", reason: the test cluster is shared}
`

func writePolicy(t *testing.T, name, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(name, []byte(text), 0o600))
}

// TestPolicy matches services and findings with the patterns of a file.
func TestPolicy(t *testing.T) {
	name := filepath.Join(t.TempDir(), "policy.yaml")
	writePolicy(t, name, example)
	p := must.Have(Read(name))(t)
	for service, want := range map[string]string{"shop-web": "team-shop", "shop": "", "pay": "#pay on chat", "pay-2": ""} {
		if got := p.OwnerOf(service); got != want {
			t.Errorf("%s has the owner %q", service, got)
		}
	}
	last := time.Date(2027, 1, 31, 23, 59, 59, 0, time.UTC)
	for _, c := range []struct {
		service, environment, rule, site string
		instant                          time.Time
		want                             string
	}{
		{"pay", "live", "WL1007", "main.(*journal).append main.go:126", last, "the journal is replaced in January"},
		{"pay", "live", "WL1007", "main.(*journal).append main.go:126", last.Add(time.Second), ""},
		{"pay", "live", "WL1007", "main.(*journal).flush main.go:140", last, ""},
		{"pay", "live", "WL1008", "main.(*journal).append main.go:126", last, ""},
		{"shop", "live", "WL1007", "main.(*journal).append main.go:126", last, ""},
		{"any", "test", "WL4003", "", last, "the test cluster is shared"},
		{"any", "live", "WL4003", "", last, ""},
	} {
		got := ""
		if m := p.MuteOf(c.service, c.environment, c.rule, c.site, c.instant); m != nil {
			got = m.Reason
		}
		if got != c.want {
			t.Errorf("%+v: muted because of %q", c, got)
		}
	}
}

// TestWrongPolicy reads files with mistakes. Each error names the file and the mistake.
func TestWrongPolicy(t *testing.T) {
	name := filepath.Join(t.TempDir(), "policy.yaml")
	for text, want := range map[string]string{
		"mutes: [{service: a, reason: b}]":                               "until",
		"mutes: [{service: a, until: 2027-02-30, reason: b}]":            "2027-02-30",
		"mutes: [{service: a, until: 2027-01-31}]":                       "no reason",
		"mutes: [{environment: a, until: 2027-01-31, reason: b}]":        "names neither",
		"mutes: [{service: a, code: WL1, until: 2027-01-31, reason: b}]": "code",
		"owners: [{service: a}]":                                         "no name",
		"owner: []":                                                      "owner",
	} {
		writePolicy(t, name, text)
		if _, err := Read(name); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestChangedPolicy changes a policy's file. While the file is wrong or missing, the policy before it remains, and one error is logged.
func TestChangedPolicy(t *testing.T) {
	name := filepath.Join(t.TempDir(), "policy.yaml")
	writePolicy(t, name, example)
	var logged bytes.Buffer
	f := must.Have(Open(name, slog.New(slog.NewTextHandler(&logged, nil))))(t)
	check := func(owner string, errors int) {
		t.Helper()
		for range 2 {
			if got := f.Current().OwnerOf("pay"); got != owner {
				t.Errorf("the owner is %q", got)
			}
		}
		if n := strings.Count(logged.String(), "level=ERROR"); n != errors {
			t.Errorf("%d errors: %s", n, &logged)
		}
	}
	check("#pay on chat", 0)
	writePolicy(t, name, "owners: wrong")
	check("#pay on chat", 1)
	writePolicy(t, name, "owners: [{service: pay, owner: new}]")
	check("new", 1)
	must.Do(t, os.Remove(name))
	check("new", 2)
	writePolicy(t, name, "owners: [{service: pay, owner: newer}]")
	check("newer", 2)
	if (*File)(nil).Current().OwnerOf("pay") != "" {
		t.Error("no file has an owner")
	}
}
