package report

// Tail returns the band that represents a group's slow requests: the outliers where those have at least half of the
// time of all, or a tenth of it and no part in TailByPercentile, else that. It is never nil.
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

// TailByPercentile returns Band99 where it holds at least TailRequests, else Band9099 where that does, else all. It is
// never nil.
func (g *Group) TailByPercentile() *Band {
	for _, name := range []BandName{Band99, Band9099} {
		if b := g.Band(name); b != nil && b.Count >= TailRequests {
			return b
		}
	}
	return g.All()
}
