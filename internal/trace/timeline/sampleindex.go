package timeline

import (
	"cmp"
	"slices"
	"sync"
)

// A sampleIndex lists the CPU samples of each goroutine. It is built on the first use.
type sampleIndex struct {
	samplesOnce sync.Once
	samplesByG  map[uint64][]int32
}

func (x *sampleIndex) reset() { *x = sampleIndex{} }

// SamplesOf returns the indexes in Samples of all CPU samples of a goroutine.
func (g *Gen) SamplesOf(id uint64) []int32 {
	g.samplesOnce.Do(g.indexSamples)
	return g.samplesByG[id]
}

// indexSamples sets samplesByG: by goroutine, the indexes of its CPU samples in Samples, in order of time.
func (g *Gen) indexSamples() {
	g.samplesByG = make(map[uint64][]int32)
	for i, s := range g.Samples {
		g.samplesByG[s.G] = append(g.samplesByG[s.G], int32(i))
	}
}

// SamplesIn returns the indexes in Samples of a goroutine's CPU samples in [from, to), in order of time. The result must not be
// changed.
func (g *Gen) SamplesIn(id uint64, from, to int64) []int32 {
	k, _ := slices.BinarySearchFunc(g.Samples, from, func(s Sample, t int64) int { return cmp.Compare(s.Time, t) })
	if k == len(g.Samples) || g.Samples[k].Time >= to {
		return nil // no goroutine has one, as in most short runs
	}
	samples := g.SamplesOf(id)
	before := func(k int32, t int64) int { return cmp.Compare(g.Samples[k].Time, t) }
	i, _ := slices.BinarySearchFunc(samples, from, before)
	j, _ := slices.BinarySearchFunc(samples[i:], to, before)
	return samples[i : i+j]
}
