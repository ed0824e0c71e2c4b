package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
)

// A Selection restricts a query to a period, a service and an environment. An empty service or environment selects all.
type Selection struct {
	From, To             time.Time
	Service, Environment string
}

// selectionCondition returns the SQL condition of a selection for a table, and its arguments. The begin of the period is rounded down to a multiple
// of unit; its end is not part of it.
func (s *databases) selectionCondition(table string, sel Selection, unit time.Duration) (string, []any) {
	column, from := map[string]string{"seen": "day"}[table], sel.From.Truncate(unit).Unix()
	if column == "" {
		column = "minute"
	}
	condition, args := column+">=? AND "+column+"<?", []any{from, sel.To.Unix()}
	if s.clickhouse != nil && (table == "sums" || table == "costs") { // uses the key: a recording is received after it begins
		condition, args = condition+" AND received>=?", append(args, from*int64(time.Second))
	}
	if sel.Service != "" {
		condition, args = condition+" AND service=?", append(args, sel.Service)
	}
	if sel.Environment != "" {
		condition, args = condition+" AND environment=?", append(args, sel.Environment)
	}
	return condition, args
}

// tableExpr returns the SQL expression for a table. The table costs has sums over all groups and buckets. In ClickHouse, FINAL
// omits rows that newer ones replaced. It is not hidden in a view, because ClickHouse 18.16 would then read all rows for every
// query.
func (s *databases) tableExpr(table string) string {
	if s.clickhouse == nil {
		return strings.Replace(table, "costs", "sums", 1)
	}
	const sums = `sums.version AS version, sums.environment AS environment, sums.cause AS cause, sums.bucket AS bucket, sums.n AS n, sums.ns AS ns`
	return map[string]string{
		"headrooms": `headrooms_rows FINAL`,
		"problems":  `problems_rows FINAL`,
		"sums":      `explained_rows FINAL ARRAY JOIN sums.grp AS grp, sums.cause AS cause, sums.bucket AS bucket, sums.n AS n, sums.ns AS ns`,
		"costs":     `explained_rows FINAL ARRAY JOIN costs.cause AS cause, costs.n AS n, costs.ns AS ns`,
		"found":     `explained_rows FINAL ARRAY JOIN found.problem AS problem, found.requests AS requests, found.ns AS ns`,
		"slow": `explained_rows FINAL ARRAY JOIN slow.request AS request, slow.grp AS grp, slow.moment AS moment, slow.ns AS ns, slow.cause AS cause, slow.site AS site,
			slow.trace AS trace`,
		"hours": `hours_rows FINAL ARRAY JOIN ` + sums,
		"days":  `days_rows FINAL ARRAY JOIN ` + sums,
		"seen": `found_rows FINAL ARRAY JOIN found.version AS version, found.environment AS environment, found.problem AS problem, found.n AS n, found.requests AS requests,
			found.ns AS ns, found.oldest AS oldest, found.newest AS newest, found.pods AS pods`,
	}[table]
}

// sumExpr returns the SQL expression for the sum of a column, bounded to rows.MaxSum. Beyond 64 bits, SQLite's sum fails and
// ClickHouse's wraps around.
func (s *databases) sumExpr(column string) string {
	if s.clickhouse != nil {
		return fmt.Sprintf("greatest(toInt64(0), if(sum(toFloat64(%[1]s))>=%[2]d, toInt64(%[2]d), sum(%[1]s)))", column, int64(rows.MaxSum))
	}
	return fmt.Sprintf("CAST(max(0, min(total(%s), %d)) AS INTEGER)", column, int64(rows.MaxSum))
}

// divExpr returns the SQL expression for the integer division of a column by an argument (?), which the databases write
// differently.
func (s *databases) divExpr(column string) string {
	if s.clickhouse != nil {
		return "intDiv(" + column + ", ?)"
	}
	return column + " / ?"
}

// NamesOf returns the services and environments of versions, sorted.
func NamesOf(versions []Version) (services, environments []string) {
	for _, v := range versions {
		services = append(services, v.Service)
		if v.Environment != "" {
			environments = append(environments, v.Environment)
		}
	}
	slices.Sort(services)
	slices.Sort(environments)
	return slices.Compact(services), slices.Compact(environments)
}

// Names returns the services and environments of a selection, sorted.
func (s *Store) Names(ctx context.Context, sel Selection) (services, environments []string, err error) {
	list, err := s.problemSums(ctx, sel, "problem=''")
	versions := make([]Version, len(list))
	for i, r := range list {
		versions[i] = Version{Service: r.service, Environment: r.environment}
	}
	services, environments = NamesOf(versions)
	return services, environments, err
}

// inCondition returns the SQL condition that a column has one of some values, of which there must be one, and its arguments.
func inCondition(column string, values []string) (string, []any) {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v
	}
	return column + ` IN (?` + strings.Repeat(",?", len(values)-1) + `)`, args
}
