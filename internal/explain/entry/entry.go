// Package entry returns entries of maps and slices, which it creates on demand. Most sums are in such maps and slices.
package entry

import (
	"iter"
	"slices"
)

// GetOrAdd returns m[k]. If the map has no such key, it adds a pointer to a zero value.
func GetOrAdd[K comparable, V any](m map[K]*V, k K) *V {
	v := m[k]
	if v == nil {
		v = new(V)
		m[k] = v
	}
	return v
}

// GetOrMake returns m[k]. If the map has no such key, it adds the value that create returns.
func GetOrMake[K comparable, V any](m map[K]V, k K, create func() V) V {
	v, ok := m[k]
	if !ok {
		v = create()
		m[k] = v
	}
	return v
}

// Put sets (*m)[k]. It makes the map if it is nil, as long as it has no entry.
func Put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
}

// GetOrGrow returns a pointer to the element of an id, for which it appends zero values as needed. The pointer is valid until the
// next call.
func GetOrGrow[ID ~int32 | ~uint32, V any](s *[]V, id ID) *V {
	for int(id) >= len(*s) {
		var zero V
		*s = append(*s, zero)
	}
	return &(*s)[id]
}

// Resize returns a slice of length n, in the memory of s, with its old values, if that suffices. In contrast to slices.Grow it
// copies no elements and allocates no additional quarter.
func Resize[V any](s []V, n int) []V {
	if cap(s) < n {
		s = make([]V, n)
	}
	return s[:n]
}

// FindOrAppend returns a pointer to the first element that matches. If none does, it appends a value. The pointer is valid until the next
// call.
func FindOrAppend[V any](s *[]V, matches func(V) bool, value V) *V {
	i := slices.IndexFunc(*s, matches)
	if i < 0 {
		i = len(*s)
		*s = append(*s, value)
	}
	return &(*s)[i]
}

// MoveUp moves an element to an earlier position, in place. The others keep their order.
func MoveUp[V any](s []V, from, to int) {
	v := s[from]
	copy(s[to+1:from+1], s[to:from])
	s[to] = v
}

// EqualRuns yields the longest runs of successive elements that are equal by a comparison.
func EqualRuns[T any](list []T, equal func(a, b T) bool) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for i, j := 0, 0; i < len(list); i = j {
			for j = i + 1; j < len(list) && equal(list[i], list[j]); j++ {
			}
			if !yield(list[i:j]) {
				return
			}
		}
	}
}

// Each yields a pointer to each element. The list must not be replaced during the loop.
func Each[V any](s []V) iter.Seq[*V] {
	return func(yield func(*V) bool) {
		for i := 0; i < len(s) && yield(&s[i]); i++ {
		}
	}
}
