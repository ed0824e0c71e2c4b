package cli

import "testing"

func TestColorsWanted(t *testing.T) {
	for _, c := range []struct {
		flag     colorFlag
		terminal bool
		env      map[string]string
		want     bool
	}{
		{"auto", true, nil, true},
		{"auto", true, map[string]string{"TERM": "xterm-256color", "NO_COLOR": ""}, true},
		{"auto", false, nil, false},
		{"auto", true, map[string]string{"NO_COLOR": "1"}, false},
		{"auto", true, map[string]string{"TERM": "dumb"}, false},
		{"always", false, map[string]string{"NO_COLOR": "1", "TERM": "dumb"}, true},
		{"never", true, nil, false},
	} {
		if got := c.flag.wanted(c.terminal, func(k string) string { return c.env[k] }); got != c.want {
			t.Errorf("--color=%s, terminal %v, environment %v: %v", c.flag, c.terminal, c.env, got)
		}
	}
}
