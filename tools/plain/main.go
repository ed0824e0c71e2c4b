// Command plain measures how plain the names and comments of this repository are, and fails if they became less plain.
//
// It counts names that consist of one function word, such as "of" or "kept", and phrases in comments for which the
// documentation of the field has a term. Nine model code bases (go-tools, gotraceui, pprof, perf, x/exp, Prometheus' tsdb,
// opentelemetry-ebpf-profiler, delve, pyroscope) have up to 2 % of such names and 2 to 9 phrases in 10,000 words.
//
//	go -C tools run ./plain              print the figures; status 1 if one is above its limit in plain/limits.txt
//	go -C tools run ./plain -list DIR    also list the names and phrases below DIR
//	go -C tools run ./plain -update      lower the limits to today's figures; no limit rises
//
// Generated files, testdata, lab and stories do not count.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	root       = ".." // of the repository, from module tools
	limitsFile = "plain/limits.txt"
)

// main prints the figures of the repository and fails if one is above its limit. With -update it lowers the limits instead.
func main() {
	log.SetFlags(0)
	log.SetPrefix("plain: ")
	list := flag.String("list", "", "list what is not plain below this `directory` of the repository")
	update := flag.Bool("update", false, "lower the limits to today's figures")
	flag.Parse()
	program, tests, err := measureTree(root, "lab", "stories")
	if err != nil {
		log.Fatal(err)
	}
	if *list != "" {
		printFindings(filepath.Clean(*list), program, tests)
	}
	figures := slices.Concat(program.figures("program"), tests.figures("tests"))
	limits, err := readLimits(limitsFile)
	if err != nil {
		log.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(limitsFile, limits.lower(figures).format(), 0o644); err != nil {
			log.Fatal(err)
		}
		return
	}
	exceeded := false
	for _, f := range figures {
		note := ""
		if limit, ok := limits[f.name]; !ok || f.value > limit {
			note, exceeded = fmt.Sprintf("  above its limit, %.1f", limit), true
		}
		fmt.Printf("%-20s %6.1f %s%s\n", f.name, f.value, f.unit, note)
	}
	if exceeded {
		log.Fatal("names or comments became less plain: -list DIR lists them, CONTRIBUTING.md says what to write")
	}
}

// measureTree measures the Go files below a directory, tests separately. The skipped directories are relative to it.
func measureTree(dir string, skipped ...string) (program, tests *measure, err error) {
	program, tests = new(measure), new(measure)
	files := token.NewFileSet()
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			hidden := strings.HasPrefix(entry.Name(), ".") && relative != "."
			if hidden || entry.Name() == "testdata" || slices.Contains(skipped, relative) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(files, relative, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil || ast.IsGenerated(file) {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			tests.add(files, file)
		} else {
			program.add(files, file)
		}
		return nil
	})
	program.sortFindings()
	tests.sortFindings()
	return program, tests, err
}

// printFindings prints the findings in files below dir.
func printFindings(dir string, measures ...*measure) {
	for _, m := range measures {
		for _, f := range m.findings {
			if dir == "." || strings.HasPrefix(f.position.Filename, dir+string(filepath.Separator)) {
				fmt.Printf("%s:%d: %s\n", f.position.Filename, f.position.Line, f.text)
			}
		}
	}
}
