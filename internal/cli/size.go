package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// sizeFlag is a flag's value in bytes: 300MB, 1.5GiB, 268435456.
type sizeFlag int64

func (f *sizeFlag) Type() string { return "size" }

func (f *sizeFlag) String() string {
	if *f == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*f), 10)
}

func (f *sizeFlag) Set(s string) error {
	n, err := parseSize(s)
	if err == nil {
		*f = sizeFlag(n)
	}
	return err
}

// parseSize reads a size in bytes with a decimal (kB, MB, GB, TB) or binary unit (KiB, MiB, ...); a unit without its B
// is taken as well, and letters may be of either case. Bare K, M, G are decimal as well.
func parseSize(s string) (int64, error) {
	text := strings.TrimSpace(s)
	end := strings.LastIndexAny(text, "0123456789.") + 1
	v, err := strconv.ParseFloat(text[:end], 64)
	unit := strings.ToLower(strings.TrimSpace(text[end:]))
	scale := 1.0
	switch strings.TrimSuffix(unit, "b") {
	case "":
	case "k":
		scale = 1e3
	case "m":
		scale = 1e6
	case "g":
		scale = 1e9
	case "t":
		scale = 1e12
	case "ki":
		scale = 1 << 10
	case "mi":
		scale = 1 << 20
	case "gi":
		scale = 1 << 30
	case "ti":
		scale = 1 << 40
	default:
		err = strconv.ErrSyntax
	}
	if v *= scale; err != nil || !(v >= 1) || v > math.MaxInt64/2 {
		return 0, fmt.Errorf("%q is not a size: write it as 300MB, 1.5GiB or 268435456", s)
	}
	return int64(v), nil
}
