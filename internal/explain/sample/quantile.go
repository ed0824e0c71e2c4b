package sample

import (
	"cmp"
	"slices"
)

// Quantile returns the largest of sorted values below which no more than a share q of the others are; 0 if there are no values.
func Quantile[T cmp.Ordered](sorted []T, q float64) (value T) {
	if len(sorted) > 0 {
		value = sorted[int(q*float64(len(sorted)-1))]
	}
	return value
}

// Median sorts values and returns the middle one, of an even number the upper one; 0 if there are no values.
func Median[T cmp.Ordered](values []T) (value T) {
	slices.Sort(values)
	if len(values) > 0 {
		value = values[len(values)/2]
	}
	return value
}
