package report

// Tail returns the band that represents a group's slow requests. That is the band of outliers if they have at least half of the
// group's time, or at least a tenth of it and are all slower than the band of TailByPercentile; else the latter. It is never nil.
func (g *Group) Tail() *Band {
	tail := g.TailByPercentile()
	if outliers := g.Band(BandOutliers); outliers != nil {
		all, ns := g.All().TotalNS(), outliers.TotalNS()
		if 2*ns >= all || 10*ns >= all && tail.ToNS <= outliers.FromNS {
			return outliers
		}
	}
	return tail
}

// TailByPercentile returns Band99 if it holds at least TailRequests, else Band9099 if that does, else the band of all requests. It
// is never nil.
func (g *Group) TailByPercentile() *Band {
	for _, name := range []BandName{Band99, Band9099} {
		if b := g.Band(name); b != nil && b.Count >= TailRequests {
			return b
		}
	}
	return g.All()
}
