package cli

import (
	"strconv"

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

func (f *sizeFlag) Set(s string) error {
	n, err := words.ParseBytes(s)
	if err == nil {
		*f = sizeFlag(n)
	}
	return err
}
