package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
)

// A PodAnswer is a pod with the causes by which it differs from the others.
type PodAnswer struct {
	store.Pod
	MeanNS  int64    `json:"mean_ns"`
	Differs []string `json:"differs" doc:"causes on which its requests spend far more time than those of the others do"`
	Words   string   `json:"words" doc:"the largest difference in words"`
}

// A pod differs by a cause if its mean time on that cause exceeds the median of all pods by more than five times the median
// absolute deviation, by more than half of the median, and by more than a millisecond. With fewer than four pods none differs.
// Pods with fewer than 20 requests are not judged.
const (
	minPods         = 4
	distanceFactor  = 5
	minRatio        = 1.5
	minDifferenceNS = int64(time.Millisecond)
	minRequests     = 20
)

// judgedPods returns the pods of a selection, each judged among those of its version, those with most differences first.
func (s *Server) judgedPods(ctx context.Context, sel store.Selection) ([]PodAnswer, error) {
	pods, err := s.Store.Pods(ctx, sel)
	if err != nil {
		return nil, err
	}
	// Each version is judged alone: after a deploy, its pods differ from those of the version before.
	podsByVersion := make(map[string][]store.Pod)
	for _, p := range pods {
		podsByVersion[p.Version] = append(podsByVersion[p.Version], p)
	}
	out := []PodAnswer{}
	for _, list := range podsByVersion {
		out = append(out, judgePods(list)...)
	}
	slices.SortFunc(out, func(a, b PodAnswer) int {
		return cmp.Or(cmp.Compare(len(b.Differs), len(a.Differs)), cmp.Compare(b.MeanNS, a.MeanNS), cmp.Compare(a.Pod.Pod, b.Pod.Pod))
	})
	return out, nil
}

// judgePods compares the pods of one version with each other. The answers, in the order of pods, list the causes that take notably longer in a pod
// than in the middle one. Nothing differs with fewer than minPods pods of minRequests requests.
func judgePods(pods []store.Pod) []PodAnswer {
	out := make([]PodAnswer, len(pods))
	causeMeans := make(map[string][]int64) // by cause, one mean for each judged pod
	judgedCount := 0
	for i, p := range pods {
		out[i] = PodAnswer{Pod: p, Differs: []string{}}
		for _, ns := range p.NS {
			out[i].MeanNS = rows.AddClamped(out[i].MeanNS, ns/max(1, p.Requests))
		}
		if p.Requests >= minRequests {
			judgedCount++
			for cause, ns := range p.NS {
				causeMeans[cause] = append(causeMeans[cause], ns/p.Requests)
			}
		}
	}
	if judgedCount < minPods {
		return out
	}
	for cause, list := range causeMeans {
		for len(list) < judgedCount {
			list = append(list, 0)
		}
		causeMeans[cause] = list
		middle := median(list)
		var distances []int64
		for _, v := range list {
			distances = append(distances, max(v-middle, middle-v))
		}
		maxDistance := rows.Clamp(median(distances), rows.MaxSum/distanceFactor) * distanceFactor
		threshold := max(rows.AddClamped(middle, maxDistance), int64(minRatio*float64(middle)), middle+minDifferenceNS)
		for i := range out {
			p := &out[i]
			if podMean := p.NS[cause] / max(1, p.Requests); p.Requests >= minRequests && podMean > threshold {
				p.Differs = append(p.Differs, cause)
			}
		}
	}
	for i := range out {
		p := &out[i]
		excess := func(cause string) int64 { return p.NS[cause]/max(1, p.Requests) - median(causeMeans[cause]) }
		slices.SortFunc(p.Differs, func(a, b string) int { return cmp.Or(cmp.Compare(excess(b), excess(a)), cmp.Compare(a, b)) })
		if len(p.Differs) > 0 {
			c := p.Differs[0]
			p.Words = fmt.Sprintf("a request spends %s on %s; in the middle pod %s", formatDuration(p.NS[c]/max(1, p.Requests)), c, formatDuration(median(causeMeans[c])))
		}
	}
	return out
}

// median returns the lower median, 0 for an empty list.
func median(list []int64) int64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[(len(sorted)-1)/2]
}
