package sample

// Key returns a pseudo-random number that depends only on the request that begins at start on goroutine g. Different requests
// have different keys. Samples with different odd factors are independent.
func Key(start int64, g, factor uint64) uint64 {
	z := uint64(start)*factor + Spread(g)
	// The finalizer of SplitMix64, Steele et al., OOPSLA 2014.
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Spread distributes consecutive numbers evenly over all numbers: it multiplies by 1<<64 divided by the golden ratio (Knuth, The
// Art of Computer Programming, volume 3, 6.4). The upper bits are better distributed than the lower ones.
func Spread(k uint64) uint64 { return k * 0x9e3779b97f4a7c15 }

// Hash is Spread with lower bits that depend on the upper ones. It is cheaper and less random than Key.
func Hash(k uint64) uint64 {
	k = Spread(k)
	return k ^ k>>32
}
