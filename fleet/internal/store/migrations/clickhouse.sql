-- The tables of SQLite, a row a recording with all that it counts: written again, by another worker or program, it replaces itself as a
-- whole, since its key is known before it is explained. The newest row counts. Sums by hour and day, kept by Store.RollUp, are a row
-- a service for the same reason. Written in the dialect that 18.16 knows, too. All of it is run at each start, so a change is a statement that
-- may be run again: goose cannot keep its versions in 18.16, whose protocol takes no values inside of a statement.
CREATE TABLE IF NOT EXISTS explained_rows (
	service String, received Int64, recording String, version String, environment String, pod String, node String, minute Int64, stamp String,
	sums Nested (grp String, cause String, bucket Int64, n Int64, ns Int64),
	costs Nested (cause String, n Int64, ns Int64), -- sums of all groups and buckets, for the pages of a service
	found Nested (problem String, requests Int64, ns Int64),
	slow Nested (request String, grp String, moment Int64, ns Int64, cause String, site String, trace String), written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(intDiv(received, 1000000000))))
	ORDER BY (service, received, recording) SETTINGS index_granularity = 128;
CREATE TABLE IF NOT EXISTS hours_rows (
	service String, hour Int64, sums Nested (version String, environment String, cause String, bucket Int64, n Int64, ns Int64), written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(hour))) ORDER BY (service, hour) SETTINGS index_granularity = 256;
CREATE TABLE IF NOT EXISTS days_rows (
	service String, minute Int64, sums Nested (version String, environment String, cause String, bucket Int64, n Int64, ns Int64), written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(minute))) ORDER BY (service, minute) SETTINGS index_granularity = 256;
CREATE TABLE IF NOT EXISTS found_rows (
	service String, day Int64, found Nested (version String, environment String, problem String, n Int64, requests Int64, ns Int64, oldest String, newest String,
	pods Int64), written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(day))) ORDER BY (service, day) SETTINGS index_granularity = 256;
CREATE TABLE IF NOT EXISTS problems_rows (
	problem String, service String, environment String, grp String, code String, cause String, site String, severity String, title String, fix String,
	updated Int64
) ENGINE = ReplacingMergeTree(updated) ORDER BY problem;
CREATE TABLE IF NOT EXISTS headrooms_rows (
	service String, received Int64, recording String, version String, environment String, moment Int64, times Float64, low Float64, high Float64,
	resource String, unjudged String, reason String, written Int64
) ENGINE = ReplacingMergeTree(written) PARTITION BY toYYYYMM(toDate(toDateTime(intDiv(received, 1000000000)))) ORDER BY (service, received, recording);
-- What the ledger of several machines keeps of recordings.
CREATE TABLE IF NOT EXISTS recordings_rows (
	id String, service String, version String, environment String, pod String, node String, received Int64, bytes Int64, state String, tries Int32,
	error String, raw Int8, class String, written Int64
) ENGINE = ReplacingMergeTree(written) ORDER BY id SETTINGS index_granularity = 128;
CREATE VIEW IF NOT EXISTS recordings AS SELECT id, service, version, environment, pod, node, received, bytes, state, tries, error, raw, class
	FROM recordings_rows FINAL;
CREATE TABLE IF NOT EXISTS series_rows (service String, version String, environment String, pod String, node String, grp String, day Int64)
	ENGINE = ReplacingMergeTree(day) ORDER BY (service, version, environment, pod, node, grp);
-- What webhooks have said, and what waits to be delivered: see internal/notify.
CREATE TABLE IF NOT EXISTS told_rows (what String, state String, moment Int64, written Int64) ENGINE = ReplacingMergeTree(written) ORDER BY what;
CREATE VIEW IF NOT EXISTS told AS SELECT what, state, moment FROM told_rows FINAL;
CREATE TABLE IF NOT EXISTS outbox_rows (id String, body String, made Int64, due Int64, tries Int32, written Int64) ENGINE = ReplacingMergeTree(written) ORDER BY id;
CREATE VIEW IF NOT EXISTS outbox AS SELECT id, body, made, due, tries, written FROM outbox_rows FINAL WHERE due>=0;
