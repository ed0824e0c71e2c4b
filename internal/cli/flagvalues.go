package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/output/words"
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

// Set parses a number of bytes with or without a unit, such as 300MB or 1.5GiB.
func (f *sizeFlag) Set(s string) error {
	n, err := words.ParseBytes(s)
	if err != nil {
		return errors.New("write a size such as 300MB, 1.5GiB or 268435456")
	}
	*f = sizeFlag(n)
	return nil
}

// percentFlag is a share: 2%, or 0.02.
type percentFlag float64

func (p *percentFlag) Type() string   { return "share" }
func (p *percentFlag) String() string { return fmt.Sprintf("%g%%", 100*float64(*p)) }

// Set parses a share above 0 and up to 1 (100%), such as 2% or 0.02.
func (p *percentFlag) Set(s string) error {
	number, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil {
		return errors.New("write a share such as 2%")
	}
	if percent {
		v /= 100
	}
	if !(v > 0 && v <= 1) {
		return errors.New("write a share above 0% and up to 100%")
	}
	*p = percentFlag(v)
	return nil
}
