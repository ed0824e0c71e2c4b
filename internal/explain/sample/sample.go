// Package sample selects a bounded number of requests from a stream that several workers divide: the slowest ones, or a
// pseudo-random sample. The selection depends only on the requests, not on their order, nor on the workers. For a sample, each
// request has a Key, and a TopN stores the requests with the smallest keys (a bottom-k sample, Cohen and Kaplan, PODC 2007).
// Quantile and Median describe any list of values.
package sample

import "slices"

// A TopN stores the first elements, in an order, of all that are added: at most a limit. A nil TopN is empty, and cannot be added to.
type TopN[T any] struct {
	limit    int
	compare  func(a, b T) int
	elements []T // sorted
}

// New returns an empty TopN. The limit must be positive. If compare returns 0 for different elements, which of them is stored
// depends on their order of arrival.
func New[T any](limit int, compare func(a, b T) int) *TopN[T] {
	return &TopN[T]{limit: limit, compare: compare}
}

// Last returns the last stored element, which the next Add may replace. It returns false if the limit is not reached.
func (t *TopN[T]) Last() (last T, isFull bool) {
	if t == nil || len(t.elements) < t.limit {
		return last, false
	}
	return t.elements[t.limit-1], true
}

// Add adds an element. If that exceeds the limit, it drops the last one, perhaps x, and returns it and true. It moves the elements
// after x, so those of a large TopN should be pointers.
func (t *TopN[T]) Add(x T) (dropped T, isFull bool) {
	if last, isFull := t.Last(); isFull && t.compare(x, last) >= 0 {
		return x, true
	}
	i, _ := slices.BinarySearchFunc(t.elements, x, t.compare)
	t.elements = slices.Insert(t.elements, i, x)
	if len(t.elements) <= t.limit {
		return dropped, false
	}
	dropped, t.elements = t.elements[t.limit], t.elements[:t.limit]
	return dropped, true
}

// Merge adds the elements of another TopN.
func (t *TopN[T]) Merge(other *TopN[T]) {
	for _, x := range other.Sorted() {
		t.Add(x)
	}
}

// Sorted returns the stored elements in order. The slice is valid until the next Add, and must not be changed.
func (t *TopN[T]) Sorted() []T {
	if t == nil {
		return nil
	}
	return t.elements
}
