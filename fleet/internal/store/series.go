package store

import (
	"context"
	"time"
)

// A Point is a sum over an interval of time.
type Point struct {
	Start    time.Time `json:"start"`
	Version  string    `json:"version"`
	Cause    string    `json:"cause" doc:"empty: N counts the requests"`
	Requests int64     `json:"requests"`
	NS       int64     `json:"ns"`
}

// Series returns the numbers of requests and their time in ns, by interval of length step, version and cause. Points without requests are missing.
func (s *Store) Series(ctx context.Context, sel Selection, step time.Duration) ([]Point, error) {
	table := "costs"
	if step >= day {
		table = "days"
	}
	inSelection, args := s.selectionCondition(table, sel, step)
	return queryAll(ctx, s.rowReader, func(scan func(...any) error) (p Point, err error) {
		var interval int64
		err = scan(&interval, &p.Version, &p.Cause, &p.Requests, &p.NS)
		p.Start = time.Unix(interval*int64(step/time.Second), 0)
		return p, err
	}, `SELECT `+s.divExpr("minute")+` AS at, version, cause, `+s.sumExpr("n")+`, `+s.sumExpr("ns")+` FROM `+s.tableExpr(table)+` WHERE `+inSelection+` GROUP BY at, version, cause ORDER BY at, version, cause`,
		append([]any{int64(step / time.Second)}, args...)...)
}

// VisitSums calls visit with the number of requests (n) and their time (ns) over all recordings, by group, cause and bucket.
func (s *Store) VisitSums(ctx context.Context, visit func(group, cause string, bucket, n, ns int64)) error {
	return eachRow(ctx, s.rowReader, func(scan func(...any) error) error {
		var group, cause string
		var bucket, n, ns int64
		if err := scan(&group, &cause, &bucket, &n, &ns); err != nil {
			return err
		}
		visit(group, cause, bucket, n, ns)
		return nil
	}, `SELECT grp, cause, bucket, `+s.sumExpr("n")+`, `+s.sumExpr("ns")+` FROM `+s.tableExpr("sums")+` GROUP BY grp, cause, bucket`)
}
