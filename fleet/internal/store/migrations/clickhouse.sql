-- The tables of SQLite, a row a recording: rows of one key replace each other, so writing twice counts once. Written in the
-- dialect that 18.16 knows, too. All of it is run at each start, so a change is a statement that may be run again: goose cannot keep
-- its versions in 18.16, whose protocol takes no values inside of a statement. Tables of hours and days are kept by Store.Roll.
CREATE TABLE IF NOT EXISTS sums_rows (
	service String, version String, environment String, pod String, node String, grp String, minute Int64, cause String, bucket Int64, n Int64, ns Int64,
	recording String, written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(minute)))
	ORDER BY (service, minute, version, environment, pod, node, grp, cause, bucket, recording);
CREATE VIEW IF NOT EXISTS sums AS SELECT service, version, environment, pod, node, grp, minute, cause, bucket, n, ns FROM sums_rows FINAL;
CREATE TABLE IF NOT EXISTS sums_hours (
	service String, hour Int64, version String, environment String, cause String, bucket Int64, n Int64, ns Int64, written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(hour))) ORDER BY (service, hour, version, environment, cause, bucket);
CREATE TABLE IF NOT EXISTS sums_days (
	service String, day Int64, version String, environment String, cause String, bucket Int64, n Int64, ns Int64, written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(day))) ORDER BY (service, day, version, environment, cause, bucket);
CREATE VIEW IF NOT EXISTS days AS SELECT service, version, environment, day AS minute, cause, bucket, n, ns FROM sums_days FINAL;
CREATE TABLE IF NOT EXISTS seen_rows (
	day Int64, service String, version String, environment String, pod String, node String, problem String, n Int64, requests Int64, ns Int64,
	oldest String, newest String, recording String, written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(day)))
	ORDER BY (service, day, problem, version, environment, pod, node, recording);
CREATE TABLE IF NOT EXISTS seen_days (
	day Int64, service String, version String, environment String, problem String, n Int64, requests Int64, ns Int64, oldest String, newest String, pods Int64, written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(day))) ORDER BY (day, service, version, environment, problem);
CREATE VIEW IF NOT EXISTS seen AS SELECT day, service, version, environment, problem, n, requests, ns, oldest, newest, pods FROM seen_days FINAL WHERE n>0;
CREATE TABLE IF NOT EXISTS problems_rows (
	problem String, service String, environment String, grp String, code String, cause String, site String, severity String, title String, fix String,
	updated Int64
) ENGINE = ReplacingMergeTree(updated) ORDER BY problem;
CREATE VIEW IF NOT EXISTS problems AS SELECT problem, service, environment, grp, code, cause, site, severity, title, fix, updated FROM problems_rows FINAL;
CREATE TABLE IF NOT EXISTS slow_rows (
	recording String, request String, service String, version String, environment String, pod String, node String, grp String, moment Int64, ns Int64,
	cause String, site String, trace String, written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(intDiv(moment, 1000000000))))
	ORDER BY (service, moment, recording, request);
CREATE VIEW IF NOT EXISTS slow AS SELECT recording, request, service, version, environment, pod, node, grp, moment, ns, cause, site, trace FROM slow_rows FINAL WHERE ns>0;
