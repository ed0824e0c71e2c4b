package sweep

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/output/words"
)

// Names of settings. Any other name is an environment variable.
const (
	GOMAXPROCS = "gomaxprocs"
	GOGC       = "gogc"
	GOMEMLIMIT = "gomemlimit"
	Quota      = "quota"
	Memory     = "memory"
	Instances  = "instances"
	Rate       = "rate"
	LoadShare  = "load-share"
)

// Limits of a sweep.
const (
	maxArms     = 500
	maxRuns     = 1000
	MaxDuration = 10 * time.Minute // of the measured part of a run
)

// An Axis is a setting with its values.
type Axis struct {
	Name   string
	Values []string
}

// A Setting is one value of an axis.
type Setting struct{ Name, Value string }

// Settings are the settings of one arm, in the order of the axes.
type Settings []Setting

// Get returns a setting's value, "" if the arm lacks it.
func (s Settings) Get(name string) string {
	for _, x := range s {
		if x.Name == name {
			return x.Value
		}
	}
	return ""
}

// Map returns the settings by name.
func (s Settings) Map() map[string]string {
	m := map[string]string{}
	for _, x := range s {
		m[x.Name] = x.Value
	}
	return m
}

// String returns the settings in one line: gomaxprocs=2 quota=0.5.
func (s Settings) String() string {
	var parts []string
	for _, x := range s {
		parts = append(parts, x.Name+"="+x.Value)
	}
	return strings.Join(parts, " ")
}

// isLoadSetting reports whether a setting belongs to the load, not to the service.
func isLoadSetting(name string) bool { return name == Rate || name == LoadShare }

// withoutLoad returns the settings of the service.
func (s Settings) withoutLoad() Settings {
	return slices.DeleteFunc(slices.Clone(s), func(x Setting) bool { return isLoadSetting(x.Name) })
}

// Arms returns every combination of the axes' values; the last axis changes fastest. Invalid or repeated values are an error, and so is not exactly
// one axis of the load.
func Arms(axes []Axis) ([]Settings, error) {
	arms := []Settings{nil}
	names := map[string]bool{}
	loadAxes := 0
	for _, a := range axes {
		if names[a.Name] {
			return nil, fmt.Errorf("%s is given twice: write its values in one list", a.Name)
		}
		names[a.Name] = true
		if isLoadSetting(a.Name) {
			loadAxes++
		}
		if len(a.Values) == 0 {
			return nil, fmt.Errorf("%s has no values", a.Name)
		}
		var next []Settings
		for _, arm := range arms {
			for i, v := range a.Values {
				if slices.Contains(a.Values[:i], v) {
					return nil, fmt.Errorf("%s has the value %s twice", a.Name, v)
				}
				if err := checkValue(a.Name, v); err != nil {
					return nil, err
				}
				next = append(next, append(slices.Clone(arm), Setting{a.Name, v}))
			}
		}
		if arms = next; len(arms) > maxArms {
			return nil, fmt.Errorf("there are more than %d arms: give fewer values", maxArms)
		}
	}
	if loadAxes != 1 {
		return nil, errors.New("set the load, either with --rate or with --load-share")
	}
	return arms, nil
}

// checkValue returns an error for a value that the service or the kernel would refuse.
func checkValue(name, v string) error {
	newError := func(want string) error { return fmt.Errorf("%s %q: write %s", name, v, want) }
	switch name {
	case GOMAXPROCS:
		if n, err := strconv.Atoi(v); err != nil || n < 1 || n > 10000 {
			return newError("a whole number from 1, such as 1,2,4")
		}
	case GOGC:
		if n, err := strconv.Atoi(v); v != "off" && (err != nil || n < 1) {
			return newError("a percentage such as 100, or off")
		}
	case GOMEMLIMIT, Memory:
		if _, err := words.ParseBytes(v); err != nil {
			return newError("a size such as 512MiB")
		}
	case Quota:
		if q, err := strconv.ParseFloat(v, 64); err != nil || !(q >= 0.01) || q > 10000 {
			return newError("CPUs from 0.01, such as 0.5,1,2")
		}
	case Instances:
		if n, err := strconv.Atoi(v); err != nil || n < 1 || n > 100 {
			return newError("a number from 1 to 100")
		}
	case Rate:
		if _, err := load.ParseRate(v, time.Second); err != nil {
			return err
		}
	case LoadShare:
		if _, err := parseShare(v); err != nil {
			return newError("a percentage of the service's capacity, such as 50%,85%")
		}
	default:
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(v, "\x00") {
			return fmt.Errorf("the environment variable %q: write NAME=V1,V2", name)
		}
	}
	return nil
}

// parseShare parses a percentage above 0 and up to 200, with or without %, and returns it as a share.
func parseShare(v string) (float64, error) {
	p, err := strconv.ParseFloat(strings.TrimSuffix(v, "%"), 64)
	if err != nil || !(p > 0) || p > 200 {
		return 0, errors.New("no percentage")
	}
	return p / 100, nil
}
