package text

import "testing"

func TestAssumed(t *testing.T) {
	for change, want := range map[string]string{
		"network@x.F:1 from main.a:2=60%":                                  "with half of its part",
		"network@x.F:1 from main.a:2=60%, network@x.G:9 from main.a:2=90%": "with half of its part",
		"sleep@main.f:7=50%":                                               "with half of it",
		"sched@main.f:7=50%, sched@main.g=50%":                             "with half of it",
		"sched@=50%":                                                       "with half of it",
		"sleep@main.f:7=5ms":                                               "with 5ms for each",
		"gc@=gone":                                                         "without it",
		"queue@main.f=gone":                                                "with places enough",
		"sleep@main.f=5ms, sleep@main.g=50%":                               "with sleep@main.f=5ms, sleep@main.g=50%",
		"main.f=50%":                                                       "with main.f=50%",
	} {
		if got := assumed(change); got != want {
			t.Errorf("%s: %q, want %q", change, got, want)
		}
	}
}
