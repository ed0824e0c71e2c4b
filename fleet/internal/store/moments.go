package store

import (
	"context"
	"strconv"
	"time"
)

// A Moment is a slow request.
type Moment struct {
	Recording   string    `json:"recording"`
	Request     string    `json:"request"`
	Service     string    `json:"service"`
	Environment string    `json:"environment"`
	Version     string    `json:"version"`
	Pod         string    `json:"pod"`
	Node        string    `json:"node"`
	Group       string    `json:"group"`
	Start       time.Time `json:"at"`
	NS          int64     `json:"ns"`
	Cause       string    `json:"cause" doc:"of its longest segment"`
	Site        string    `json:"site"`
	Trace       string    `json:"trace"`
}

// Moments returns requests of a selection, the slowest first, at most limit; with a trace id ("" for any) only those of that trace.
func (s *Store) Moments(ctx context.Context, sel Selection, trace string, limit int) ([]Moment, error) {
	condition, args := "moment>=? AND moment<?", []any{sel.From.UnixNano(), sel.To.UnixNano()}
	if s.clickhouse != nil { // uses the key: no recording is longer than an hour
		condition, args = condition+" AND received>=?", append(args, sel.From.Add(-time.Hour).UnixNano())
	}
	for _, c := range []struct{ column, value string }{{"service", sel.Service}, {"environment", sel.Environment}, {"trace", trace}} {
		if c.value != "" {
			condition, args = condition+" AND "+c.column+"=?", append(args, c.value)
		}
	}
	return queryAll(ctx, s.rowReader, func(scan func(...any) error) (m Moment, err error) {
		var start int64
		err = scan(&m.Recording, &m.Request, &m.Service, &m.Environment, &m.Version, &m.Pod, &m.Node, &m.Group, &start, &m.NS, &m.Cause, &m.Site, &m.Trace)
		m.Start = time.Unix(0, start)
		return m, err
	}, `SELECT recording, request, service, environment, version, pod, node, grp, moment, ns, cause, site, trace FROM `+s.tableExpr("slow")+` WHERE `+condition+` ORDER BY ns DESC LIMIT `+strconv.Itoa(limit), args...)
}
