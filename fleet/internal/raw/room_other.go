//go:build !linux && !darwin

package raw

import "math"

func room(string) (int64, error) { return math.MaxInt64, nil }
