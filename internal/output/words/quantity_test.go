package words

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestQuantities checks cases in which some part of the tool once wrote a quantity differently: exponents of amounts above
// 1,000, halves, zeros at the end of a fraction. Tests of report/html compare the page with these functions.
func TestQuantities(t *testing.T) {
	for _, c := range [][2]string{
		{Bytes(0), "0 B"}, {Bytes(999), "999 B"}, {Bytes(9996), "10.0 kB"}, {Bytes(999_499), "999 kB"}, {Bytes(999_600), "1.00 MB"}, {Bytes(12_345_678), "12.3 MB"},
		{Binary(1023), "1023 B"}, {Binary(1020 << 20), "1020 MiB"}, {Binary(3 << 29), "1.5 GiB"}, {Binary(512 << 20), "512 MiB"},
		{Percent(0), Zero}, {PercentOr0(0), "0%"}, {Percent(0.005), "<1%"}, {Percent(0.0051), "1%"}, {Percent(0.994), "99%"},
		{Share(0.2), "20%"}, {Share(0.2004), "20%"}, {Share(0.201), "20.1%"},
		{Change(0.5), "+50%"}, {Change(-0.012), "-1.2%"}, {Change(0.0994), "+9.9%"}, {Change(9), "x10"}, {Change(8.99), "+899%"},
		{Figure(0.125), "0.125"}, {Figure(17.34), "17.3"}, {Figure(1234.4), "1,234"}, {Figure(999.4), "999"}, {Figure(999.6), "1,000"},
		{CPUs(1), "1 CPU"}, {CPUs(0.5), "0.5 CPUs"}, {CPUs(2), "2 CPUs"},
		{Duration(10e6), "10.0ms"}, {Brief(10e6), "10ms"}, {Brief(1_500_000), "1.5ms"}, {Brief(100), "100ns"}, {Brief(90e9), "1m30s"}, {Brief(-2e9), "-2s"},
		{Rough(123_456), "120µs"}, {Rough(1_049_000_000), "1s"},
	} {
		check.True(t, c[0] == c[1], "%q, want %q", c[0], c[1])
	}
}

// TestServicesWriteAlike checks the cases that the services' formatting functions are tested with.
func TestServicesWriteAlike(t *testing.T) {
	text, err := os.ReadFile("../../../service/internal/quantity/testdata/cases.txt")
	if err != nil {
		t.Skip("services are a module of their own, which is not beside this one here: ", err)
	}
	writers := map[string]func(float64) string{
		"percent": PercentOr0, "share": Share, "cpus": CPUs, "binary": func(v float64) string { return Binary(int64(v)) },
	}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		v := must.Have(strconv.ParseFloat(f[1], 64))(t)
		check.Equal(t, writers[f[0]](v), f[2], "%s of %s", f[0], f[1])
	}
}
