-- The tables of SQLite, a row a recording: rows of one key replace each other, so writing twice counts once. Written in the
-- dialect that 18.16 knows, too. All of it is run at each start, so a change is a statement that may be run again: goose cannot keep
-- its versions in 18.16, whose protocol takes no values inside of a statement. Tables of hours and days are kept by Store.Roll.
CREATE TABLE IF NOT EXISTS sums_rows (
	service String, version String, environment String, pod String, node String, grp String, minute Int64, cause String, bucket Int64, n Int64, ns Int64,
	recording String, written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(minute)))
	ORDER BY (service, minute, version, environment, pod, node, grp, cause, bucket, recording);
CREATE TABLE IF NOT EXISTS sums_hours (
	service String, hour Int64, version String, environment String, cause String, bucket Int64, n Int64, ns Int64, written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(hour))) ORDER BY (service, hour, version, environment, cause, bucket);
CREATE TABLE IF NOT EXISTS sums_days (
	service String, minute Int64, version String, environment String, cause String, bucket Int64, n Int64, ns Int64, written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(minute))) ORDER BY (service, minute, version, environment, cause, bucket);
CREATE TABLE IF NOT EXISTS seen_rows (
	day Int64, service String, version String, environment String, pod String, node String, problem String, n Int64, requests Int64, ns Int64,
	oldest String, newest String, recording String, written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(day)))
	ORDER BY (service, day, problem, version, environment, pod, node, recording);
CREATE TABLE IF NOT EXISTS seen_days (
	day Int64, service String, version String, environment String, problem String, n Int64, requests Int64, ns Int64, oldest String, newest String, pods Int64, written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(day))) ORDER BY (day, service, version, environment, problem);
CREATE TABLE IF NOT EXISTS problems_rows (
	problem String, service String, environment String, grp String, code String, cause String, site String, severity String, title String, fix String,
	updated Int64
) ENGINE = ReplacingMergeTree(updated) ORDER BY problem;
CREATE TABLE IF NOT EXISTS slow_rows (
	recording String, request String, service String, version String, environment String, pod String, node String, grp String, moment Int64, ns Int64,
	cause String, site String, trace String, written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(intDiv(moment, 1000000000))))
	ORDER BY (service, moment, recording, request);
-- What the ledger of several machines keeps of recordings; counted is what is in the sums, to be taken away when it is explained again.
CREATE TABLE IF NOT EXISTS recordings_rows (
	id String, service String, version String, environment String, pod String, node String, received Int64, bytes Int64, state String, tries Int32,
	error String, raw Int8, class String, counted String, written Int64
) ENGINE = ReplacingMergeTree(written) ORDER BY id SETTINGS index_granularity = 128;
CREATE VIEW IF NOT EXISTS recordings AS SELECT id, service, version, environment, pod, node, received, bytes, state, tries, error, raw, class
	FROM recordings_rows FINAL;
CREATE TABLE IF NOT EXISTS series_rows (service String, version String, environment String, pod String, node String, grp String, day Int64)
	ENGINE = ReplacingMergeTree(day) ORDER BY (service, version, environment, pod, node, grp);
