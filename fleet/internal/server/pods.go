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

// A PodAnswer is a pod, and by what it differs from the others.
type PodAnswer struct {
	store.Pod
	MeanNS  int64    `json:"mean_ns"`
	Differs []string `json:"differs" doc:"causes on which its requests spend far more time than those of the others do"`
	Words   string   `json:"words" doc:"the largest difference in words"`
}

// Pods differ by a cause where a request of theirs spends more on it than the middle pod's by five times what lies between the
// middle pods (the median of the distances), by half as much again, and by a millisecond. With fewer than four pods nothing is usual.
const (
	leastPods  = 4
	farFactor  = 5
	leastRatio = 1.5
	leastNS    = int64(time.Millisecond)
	leastCount = 20
)

func (s *Server) pods(ctx context.Context, in store.Selection) ([]PodAnswer, error) {
	pods, err := s.Store.Pods(ctx, in)
	if err != nil {
		return nil, err
	}
	// A version is judged by itself: a deploy makes its pods differ from those before.
	of := make(map[string][]store.Pod)
	for _, p := range pods {
		of[p.Version] = append(of[p.Version], p)
	}
	out := []PodAnswer{}
	for _, list := range of {
		out = append(out, judgePods(list)...)
	}
	slices.SortFunc(out, func(a, b PodAnswer) int {
		return cmp.Or(cmp.Compare(len(b.Differs), len(a.Differs)), cmp.Compare(b.MeanNS, a.MeanNS), cmp.Compare(a.Pod.Pod, b.Pod.Pod))
	})
	return out, nil
}

func judgePods(pods []store.Pod) []PodAnswer {
	out := make([]PodAnswer, len(pods))
	each := make(map[string][]int64) // by cause, of pods with enough requests
	enough := 0
	for i, p := range pods {
		out[i] = PodAnswer{Pod: p, Differs: []string{}}
		for _, ns := range p.NS {
			out[i].MeanNS = rows.AddClamped(out[i].MeanNS, ns/max(1, p.Requests))
		}
		if p.Requests >= leastCount {
			enough++
			for cause, ns := range p.NS {
				each[cause] = append(each[cause], ns/p.Requests)
			}
		}
	}
	if enough < leastPods {
		return out
	}
	for cause, list := range each {
		for len(list) < enough {
			list = append(list, 0)
		}
		each[cause] = list
		mid := median(list)
		var away []int64
		for _, v := range list {
			away = append(away, max(v-mid, mid-v))
		}
		far := rows.Clamp(median(away), rows.MaxSum/farFactor) * farFactor
		least := max(rows.AddClamped(mid, far), int64(leastRatio*float64(mid)), mid+leastNS)
		for i := range out {
			p := &out[i]
			if own := p.NS[cause] / max(1, p.Requests); p.Requests >= leastCount && own > least {
				p.Differs = append(p.Differs, cause)
			}
		}
	}
	for i := range out {
		p := &out[i]
		by := func(cause string) int64 { return p.NS[cause]/max(1, p.Requests) - median(each[cause]) }
		slices.SortFunc(p.Differs, func(a, b string) int { return cmp.Or(cmp.Compare(by(b), by(a)), cmp.Compare(a, b)) })
		if len(p.Differs) > 0 {
			c := p.Differs[0]
			p.Words = fmt.Sprintf("a request spends %s on %s; in the middle pod %s", took(p.NS[c]/max(1, p.Requests)), c, took(median(each[c])))
		}
	}
	return out
}

func median(list []int64) int64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[(len(sorted)-1)/2]
}
