package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// TestCPULists tests the number of CPUs in lists, also with overlaps, and malformed lists.
func TestCPULists(t *testing.T) {
	for list, want := range map[string]int{
		"": 0, "\n": 0, "0": 1, "0-0": 1, "3": 1, "0-3": 4, "0-1,2-3": 4, "2-3,0-1": 4, "0-3,2-5": 6, "0-7,2-3": 8, "2-3,0-7,8": 9, "1,1,1": 1, "0,2,4-5\n": 4, " 0-3 ": 4,
		fmt.Sprint(maxCPUs - 1): 1, fmt.Sprintf("0-%d", maxCPUs-1): maxCPUs,
		"x": -1, "1-": -1, "-1": -1, "3-2": -1, "0,": -1, fmt.Sprint(maxCPUs): -1, "0-1-2": -1,
	} {
		got, err := parseCPUList(list)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v, want %d", list, got, err, want)
		}
	}
}

// TestNumbers tests the smallest and largest numbers that the kernel writes.
func TestNumbers(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "7": 7, "-7": -7, "9223372036854775807": math.MaxInt64, "-9223372036854775807": -math.MaxInt64, "9223372036854775806": math.MaxInt64 - 1} {
		if got, ok := parseInt([]byte(text)); !ok || got != want {
			t.Errorf("%s: %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "-", "1 ", "+1", "1-", "/", ":", "9223372036854775808", "99999999999999999999"} {
		if got, ok := parseInt([]byte(text)); ok {
			t.Errorf("%q is %d", text, got)
		}
	}
	for text, want := range map[string]int64{"18446744073709551615": math.MaxInt64, "9223372036854775808": math.MaxInt64, "5": 5, "18446744073709551616": -1, "x": -1} {
		if got, ok := parseCount([]byte(text)); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q counts %d, %v", text, got, ok)
		}
	}
	for us, want := range map[int64]time.Duration{0: 0, 1: 1000, math.MaxInt64 / 1000: math.MaxInt64 / 1000 * 1000, math.MaxInt64/1000 + 1: math.MaxInt64} {
		check.Equal(t, micros(us), want, "%d us", us)
	}
	for text, want := range map[string]string{
		"50000 100000\n": "50ms 100ms <nil>", "max 100000\n": "0s 100ms <nil>", "1 1": "1µs 1µs <nil>", "50000 100000 more": "bad", "50000": "bad", "0 100000": "bad", "-1 100000": "bad", "50000 0": "bad", "max 0": "bad", "max -5": "bad", "x 1": "bad", "": "bad",
	} {
		q, p, err := parseCPUMax([]byte(text))
		if got := fmt.Sprint(q, p, err); (err != nil) != (want == "bad") || err == nil && got != want {
			t.Errorf("cpu.max %q: %s", text, got)
		}
	}
	for text, want := range map[string]time.Duration{"50000\n": 50 * time.Millisecond, "-1": 0, "-5": 0, "1": 1000, "0": -1, "x": -1, "": -1} {
		if got, err := parseQuota([]byte(text)); (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("quota %q: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]time.Duration{"100000\n": 100 * time.Millisecond, "1": 1000, "0": -1, "-1": -1, "x": -1} {
		if got, err := parsePeriod([]byte(text)); (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("period %q: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"max\n": "0 false <nil>", "0": "0 true <nil>", "4096\n": "4096 true <nil>", "-1": "0 false <nil>", fmt.Sprint(int64(noLimit - 1)): fmt.Sprint(int64(noLimit-1), " true <nil>"), fmt.Sprint(int64(noLimit)): "0 false <nil>", "18446744073709551615": "0 false <nil>",
		"x": fmt.Sprint("0 false ", errFormat), "": fmt.Sprint("0 false ", errFormat),
	} {
		n, limited, err := parseMemory([]byte(text))
		if got := fmt.Sprint(n, limited, err); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("memory %q: %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]int64{"MemTotal: 8 kB\n": 8 << 10, "A: 1\nMemTotal:\t16 kB\nB: 2\n": 16 << 10, "MemTotal: 4503599627370496 kB": 1 << 62, "MemTotal: 4503599627370497 kB": -1, "MemTotal: 0 kB": -1, "MemTotal: x kB": -1, "MemFree: 1 kB": -1} {
		if got, ok := meminfoTotal([]byte(text)); ok != (want > 0) || ok && got != want {
			t.Errorf("%q: %d, %v", text, got, ok)
		}
	}
	var pairs []string
	for k, v := range keyValues([]byte("a 1\nb\n 3\nc -1\nd 0\ne x\nf 18446744073709551615\ng 2")) {
		if pairs = append(pairs, fmt.Sprintf("%s=%d", k, v)); string(k) == "f" {
			break
		}
	}
	if got := strings.Join(pairs, " "); got != "a=1 d=0 f=9223372036854775807" {
		t.Error(got)
	}
}

// TestProcTexts tests well-formed and malformed lines of /proc.
func TestProcTexts(t *testing.T) {
	for text, want := range map[string]string{
		"0::/a\n": "[{0 [] /a false}] 0", "4:cpu,cpuacct:/a:b\n\n0::/\n": "[{4 [cpu cpuacct] /a:b false} {0 [] / false}] 0", "0::/a (deleted)\n": "[{0 [] /a true}] 0", "0:: (deleted)": "[] 1",
		"1:c:/x": "[{1 [c] /x false}] 0", "x::/a\n-1::/a\n0:/a\n0\n0::a\n0::\n0::/a\x00": "[] 7",
	} {
		ms, bad := parseMembership([]byte(text))
		var got []string
		for _, m := range ms {
			got = append(got, fmt.Sprint("{", m.id, " ", m.controllers, " ", m.path, " ", m.deleted, "}"))
		}
		check.Equal(t, fmt.Sprintf("[%s] %d", strings.Join(got, " "), bad), want, "%q", text)
	}
	line := func(root, point, rest string) string { return "30 23 0:26 " + root + " " + point + " rw" + rest + "\n" }
	for text, want := range map[string]string{
		line("/", "/sys/fs/cgroup", " - cgroup2 cgroup2 rw"):                 "[{v2 / /sys/fs/cgroup []}] 0",
		line("/", "/c", ",nosuid shared:4 master:1 - cgroup cgroup rw,cpu"):  "[{v1 / /c [rw cpu]}] 0",
		line(`/a\040b`, `/c\011d\134`, " - cgroup2 x y"):                     "[{v2 /a b /c\td\\ []}] 0",
		line("/", "/proc", " - proc proc rw") + "\n":                         "[] 0",
		line("/a//deleted", "/c", " - cgroup2 x y"):                          "[] 0",
		line("a", "/c", " - cgroup2 x y") + line("/", "c", " - cgroup2 x y"): "[] 2",
		line(`/\04`, "/c", " - cgroup2 x y") + line(`/`, `/\000`, " - cgroup2 x y") + line(`/\`, "/c", " - cgroup2 x y") + line(`/\999`, "/c", " - cgroup2 x y") + line("/\x00", "/c", " - cgroup2 x y"): "[] 5",
		"30 23 0:26 / /c - cgroup2 x y\n" + "no separator\n" + "1 2 3 4 5 6 - cgroup2 x\n":                                                                                                               "[] 3",
	} {
		ms, bad := parseMounts([]byte(text))
		var got []string
		for _, m := range ms {
			got = append(got, fmt.Sprint("{", m.version, " ", m.root, " ", m.point, " ", m.controllers, "}"))
		}
		check.Equal(t, fmt.Sprintf("[%s] %d", strings.Join(got, " "), bad), want, "%q", text)
	}
	for in, want := range map[string]string{"a\n": "a", strings.Repeat("x", 80): strings.Repeat("x", 80), strings.Repeat("x", 81): strings.Repeat("x", 80) + "...", "a\tb\x00": `a\tb\x00`, "a\nb": `a\nb`} {
		check.Equal(t, clip(in), want, "%q is shown as", in)
	}
	for _, v := range []Version{VersionNone, V1, V2} {
		var back Version
		if err := back.UnmarshalText(must.Have(v.MarshalText())(t)); err != nil || back != v {
			t.Errorf("%v comes back as %v, %v", v, back, err)
		}
	}
	var v Version
	check.Error(t, v.UnmarshalText([]byte("v3")), "there is a version 3")
}

// TestReadFile tests that files with lengths around the size of one read are read completely, up to the limit, from the real
// file system and from an fs.FS.
func TestReadFile(t *testing.T) {
	const limit = 10000
	dir := t.TempDir()
	files := fstest.MapFS{}
	sizes := []int{0, 1, 4095, 4096, 4097, 8191, 8192, 8193, limit - 1, limit, limit + 1, 3 * limit}
	for _, n := range sizes {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i % 251)
		}
		name := fmt.Sprint(n)
		files[name] = &fstest.MapFile{Data: data}
		must.Do(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	files["folder/x"] = &fstest.MapFile{}
	must.Do(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	real, err := hostSource(dir)
	if err != nil {
		t.Skip(err)
	}
	for kind, src := range map[string]source{"real": real, "other": fsSource{files}} {
		for _, n := range sizes {
			got, err := readFile(src, fmt.Sprint("/", n), limit)
			if n >= limit {
				check.True(t, errors.Is(err, errTooLarge), "%s: %d bytes: %v", kind, n, err)
				continue
			}
			check.True(t, err == nil && string(got) == string(files[fmt.Sprint(n)].Data), "%s: %d bytes: %d, %v", kind, n, len(got), err)
		}
		for _, name := range []string{"/none", "/folder"} {
			if _, err := readFile(src, name, limit); err == nil {
				t.Errorf("%s: %s is read", kind, name)
			}
		}
		for name, want := range map[string]bool{"/folder": true, "/1": false, "/none": false, "/": true} {
			check.Equal(t, src.isDir(name), want, "%s: %s is a folder", kind, name)
		}
		h := must.Have(src.open("/4097"))(t)
		buf := make([]byte, 5000)
		for off, want := range map[int64]int{0: 4097, 1: 4096, 4096: 1, 4097: 0, 9999: 0} {
			if n, err := h.readAt(buf, off); n != want || err != nil {
				t.Errorf("%s: from %d on there are %d bytes, %v", kind, off, n, err)
			}
		}
		if n, err := h.sample(buf[:10]); n != 10 || err != nil || buf[9] != 9 {
			t.Errorf("%s: %d bytes, %v", kind, n, err)
		}
		must.Do(t, h.close())
		if kind == "real" {
			if _, err := h.readAt(buf, 0); err == nil {
				t.Error("a closed file is read")
			}
			if _, err := h.sample(buf); err == nil {
				t.Error("a closed file is sampled")
			}
			must.Do(t, h.close())
		}
	}
}
