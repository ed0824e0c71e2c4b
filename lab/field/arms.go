package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/testing/testprog"
)

// resultsFile is what a run of the stories writes with --json, to the directory to which --html writes recordings.
const resultsFile = "all.json"

// An armEntry is a recording of one arm of a story (stories/), cut to a few seconds. The expected finding is the story's, and
// the clients' figures are those of the story's run.
type armEntry struct {
	story, arm                   string
	program, module              string
	description                  string // the fault, or the work
	fault                        string // empty: healthy
	firstGeneration, generations int    // generations of a second each
}

func (a *armEntry) name() string {
	name := strings.NewReplacer(", ", "-", " ", "-", ",", "", "/s", "").Replace(a.arm)
	return "story-" + a.story + "-" + strings.ToLower(name)
}

// A storyResult has the used part of stories/stage.Result.
type storyResult struct {
	Story, Date, Machine string
	Arms                 []armResult
}

type armResult struct {
	Name     string
	P50NS    int64 `json:"p50_ns"`
	P99NS    int64 `json:"p99_ns"`
	Requests int
	Report   string
	Expected struct {
		Code, Site string
		Only       bool `json:"only"`
	}
}

// storeArms stores the arms with a matching name from a full run of the stories in the directory run.
func storeArms(run, dir string, match *regexp.Regexp) error {
	data, err := os.ReadFile(filepath.Join(run, resultsFile))
	if err != nil {
		return err
	}
	var results []storyResult
	if err := json.Unmarshal(data, &results); err != nil {
		return fmt.Errorf("reading %s: %w", resultsFile, err)
	}
	var failed []error
	for i := range armEntries {
		a := &armEntries[i]
		if !match.MatchString(a.name()) {
			continue
		}
		for _, r := range results {
			for _, arm := range r.Arms {
				if r.Story == a.story && arm.Name == a.arm {
					if err := a.store(run, dir, &r, &arm); err != nil {
						failed = append(failed, fmt.Errorf("%s: %w", a.name(), err))
					}
				}
			}
		}
	}
	return errors.Join(failed...)
}

func (a *armEntry) store(run, dir string, r *storyResult, arm *armResult) error {
	whole, err := os.ReadFile(filepath.Join(run, strings.TrimSuffix(arm.Report, ".html")+".whylate"))
	if err != nil {
		return err
	}
	part, err := cut(whole, a.firstGeneration, a.generations)
	if err != nil {
		return err
	}
	// "2 CPUs, linux/amd64, Linux 6.18, go1.26.8"
	machine := strings.Split(r.Machine, ", ")
	if len(machine) != 4 {
		return fmt.Errorf("the machine is %q", r.Machine)
	}
	if _, err := time.Parse(time.DateOnly, r.Date); err != nil {
		return err
	}
	if (arm.Expected.Code == "") != (a.fault == "") {
		return fmt.Errorf("the story expects %q of it", arm.Expected.Code)
	}
	f := &testprog.FieldCase{
		Name: a.name(), Story: a.story + ": " + a.arm, Program: a.program, Module: a.module, Description: a.description, Fault: a.fault, Healthy: a.fault == "",
		Go: machine[3], Machine: machine[1] + ", " + machine[0], Date: r.Date, Seconds: a.generations, OtherLoad: "its clients and servers",
		Client: testprog.FieldClient{Kind: "request of the whole arm", Requests: arm.Requests, P50: time.Duration(arm.P50NS), P99: time.Duration(arm.P99NS)},
		Truth: testprog.FieldTruth{
			Code: arm.Expected.Code, Finding: arm.Expected.Site, IsOnlyLoud: arm.Expected.Only, AllowedTexts: armAllowedTexts[a.story+": "+a.arm],
			SkipReason: "the clients' figures are those of the whole arm, of which this is a part",
		},
	}
	if old, err := testprog.ReadField(dir, f.Name); err == nil {
		f.KnownWrong = old.KnownWrong
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := f.WriteRecording(dir, part); err != nil {
		return err
	}
	if err := f.Write(dir); err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(dir, f.Name+".whylate"+testprog.Packed))
	if err != nil {
		return err
	}
	fmt.Printf("%7d bytes  %s\n", info.Size(), f.Name)
	return nil
}
