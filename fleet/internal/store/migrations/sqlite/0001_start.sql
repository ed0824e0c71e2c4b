-- +goose Up
CREATE TABLE recordings (
	id VARCHAR(32) NOT NULL PRIMARY KEY, service VARCHAR(128) NOT NULL, version VARCHAR(128) NOT NULL, environment VARCHAR(128) NOT NULL,
	pod VARCHAR(128) NOT NULL, node VARCHAR(128) NOT NULL, received BIGINT NOT NULL, bytes BIGINT NOT NULL,
	state VARCHAR(16) NOT NULL, tries INTEGER NOT NULL, lease BIGINT NOT NULL, error VARCHAR(1024) NOT NULL,
	raw INTEGER NOT NULL, -- 1 while the file is kept
	class VARCHAR(256) NOT NULL, -- service, cause and hour of those kept longest; else empty
	counted BLOB); -- what was added to the sums, to be taken away when it is explained again
CREATE INDEX recordings_queue ON recordings (received) WHERE state IN ('waiting', 'working');
CREATE INDEX recordings_service ON recordings (service, state, received);
CREATE INDEX recordings_raw ON recordings (received) WHERE raw=1;
CREATE INDEX recordings_class ON recordings (class) WHERE class<>'';
CREATE TABLE tokens (hash VARCHAR(64) NOT NULL PRIMARY KEY, scope VARCHAR(8) NOT NULL, name VARCHAR(128) NOT NULL, made BIGINT NOT NULL, expires BIGINT NOT NULL);
-- Sums name where they are from by a number: a row has 30 bytes instead of 150.
CREATE TABLE series (
	id INTEGER PRIMARY KEY, service VARCHAR(128) NOT NULL, version VARCHAR(128) NOT NULL, environment VARCHAR(128) NOT NULL, pod VARCHAR(128) NOT NULL,
	node VARCHAR(128) NOT NULL, grp VARCHAR(256) NOT NULL, UNIQUE (service, version, environment, pod, node, grp));
CREATE TABLE points (
	series INTEGER NOT NULL, minute BIGINT NOT NULL, cause VARCHAR(64) NOT NULL, bucket BIGINT NOT NULL, n BIGINT NOT NULL, ns BIGINT NOT NULL,
	PRIMARY KEY (series, minute, cause, bucket)) WITHOUT ROWID;
-- The same by day, of all groups, pods and nodes, for the start page.
CREATE TABLE daypoints (
	series INTEGER NOT NULL, minute BIGINT NOT NULL, cause VARCHAR(64) NOT NULL, bucket BIGINT NOT NULL, n BIGINT NOT NULL, ns BIGINT NOT NULL,
	PRIMARY KEY (series, minute, cause, bucket)) WITHOUT ROWID;
CREATE VIEW sums AS SELECT s.service, s.version, s.environment, s.pod, s.node, s.grp, p.minute, p.cause, p.bucket, p.n, p.ns
	FROM series s CROSS JOIN points p ON p.series=s.id;
CREATE VIEW days AS SELECT s.service, s.version, s.environment, p.minute, p.cause, p.bucket, p.n, p.ns
	FROM series s CROSS JOIN daypoints p ON p.series=s.id;
-- Findings by day. Problem '' are the recordings themselves: n of them, with all their requests, ns of recorded time.
-- Oldest and newest are a time in ns, 19 digits, and the id of a recording: min() and max() find both at once in any database.
CREATE TABLE seen (
	day BIGINT NOT NULL, service VARCHAR(128) NOT NULL, version VARCHAR(128) NOT NULL, environment VARCHAR(128) NOT NULL, pod VARCHAR(128) NOT NULL,
	node VARCHAR(128) NOT NULL, problem VARCHAR(16) NOT NULL, n BIGINT NOT NULL, requests BIGINT NOT NULL, ns BIGINT NOT NULL,
	oldest VARCHAR(64) NOT NULL, newest VARCHAR(64) NOT NULL,
	PRIMARY KEY (day, service, version, environment, pod, node, problem)) WITHOUT ROWID;
CREATE TABLE problems (
	problem VARCHAR(16) NOT NULL PRIMARY KEY, service VARCHAR(128) NOT NULL, environment VARCHAR(128) NOT NULL, grp VARCHAR(256) NOT NULL,
	code VARCHAR(64) NOT NULL, cause VARCHAR(64) NOT NULL, site VARCHAR(1024) NOT NULL, severity VARCHAR(16) NOT NULL, title VARCHAR(1024) NOT NULL,
	fix VARCHAR(2048) NOT NULL, updated BIGINT NOT NULL);
CREATE TABLE slow (
	recording VARCHAR(32) NOT NULL, request VARCHAR(64) NOT NULL, service VARCHAR(128) NOT NULL, version VARCHAR(128) NOT NULL, environment VARCHAR(128) NOT NULL,
	pod VARCHAR(128) NOT NULL, node VARCHAR(128) NOT NULL, grp VARCHAR(256) NOT NULL, moment BIGINT NOT NULL, ns BIGINT NOT NULL,
	cause VARCHAR(64) NOT NULL, site VARCHAR(1024) NOT NULL, trace VARCHAR(64) NOT NULL, PRIMARY KEY (recording, request)) WITHOUT ROWID;
CREATE INDEX slow_service ON slow (service, moment);
CREATE INDEX slow_trace ON slow (trace) WHERE trace<>'';
