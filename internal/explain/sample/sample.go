// Package sample selects a bounded number of requests from a stream that several workers divide: the slowest ones, or a
// pseudo-random sample. The selection depends only on the requests, not on their order, nor on the workers. For a sample, each
// request has a Key, and a TopN stores the requests with the smallest keys (a bottom-k sample, Cohen and Kaplan, PODC 2007).
package sample

import "slices"

// A TopN stores the first elements, in an order, of all that are added: at most a limit. A nil TopN is empty; only Add and Merge
// need one from New.
type TopN[T any] struct {
	limit    int
	compare  func(a, b T) int
	elements []T // when there are limit of them: a heap with the last one at index 0
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
	return t.elements[0], true
}

// Add adds an element. If that exceeds the limit, it drops the last one, perhaps x, and returns it and true.
func (t *TopN[T]) Add(x T) (dropped T, isFull bool) {
	if len(t.elements) < t.limit {
		if t.elements = append(t.elements, x); len(t.elements) == t.limit {
			for i := t.limit/2 - 1; i >= 0; i-- {
				t.siftDown(i)
			}
		}
		return dropped, false
	}
	if t.compare(x, t.elements[0]) >= 0 {
		return x, true
	}
	dropped, t.elements[0] = t.elements[0], x
	t.siftDown(0)
	return dropped, true
}

// siftDown restores the heap below index i.
func (t *TopN[T]) siftDown(i int) {
	x := t.elements[i]
	for {
		child := 2*i + 1
		if child >= len(t.elements) {
			break
		}
		if child+1 < len(t.elements) && t.compare(t.elements[child], t.elements[child+1]) < 0 {
			child++
		}
		if t.compare(t.elements[child], x) <= 0 {
			break
		}
		t.elements[i] = t.elements[child]
		i = child
	}
	t.elements[i] = x
}

// Merge adds the elements of another TopN.
func (t *TopN[T]) Merge(other *TopN[T]) {
	for _, x := range other.All() {
		t.Add(x)
	}
}

// All returns the stored elements in no particular order. The slice is valid until the next Add.
func (t *TopN[T]) All() []T {
	if t == nil {
		return nil
	}
	return t.elements
}

// Sorted returns the stored elements in order, in a new slice.
func (t *TopN[T]) Sorted() []T {
	if t == nil {
		return nil
	}
	return slices.SortedFunc(slices.Values(t.elements), t.compare)
}
