-- +goose Up
-- Findings by day are sums of all pods; which pods they were is beside them, to count each once.
CREATE TABLE seen_pods (
	day BIGINT NOT NULL, service VARCHAR(128) NOT NULL, version VARCHAR(128) NOT NULL, environment VARCHAR(128) NOT NULL, problem VARCHAR(16) NOT NULL,
	pod VARCHAR(128) NOT NULL, n BIGINT NOT NULL,
	PRIMARY KEY (day, service, version, environment, problem, pod)) WITHOUT ROWID;
CREATE TABLE seen_days (
	day BIGINT NOT NULL, service VARCHAR(128) NOT NULL, version VARCHAR(128) NOT NULL, environment VARCHAR(128) NOT NULL, problem VARCHAR(16) NOT NULL,
	n BIGINT NOT NULL, requests BIGINT NOT NULL, ns BIGINT NOT NULL, oldest VARCHAR(64) NOT NULL, newest VARCHAR(64) NOT NULL, pods BIGINT NOT NULL,
	PRIMARY KEY (day, service, version, environment, problem)) WITHOUT ROWID;
INSERT INTO seen_pods SELECT day, service, version, environment, problem, pod, sum(n) FROM seen GROUP BY 1, 2, 3, 4, 5, 6;
INSERT INTO seen_days SELECT day, service, version, environment, problem, sum(n), sum(requests), sum(ns), min(oldest), max(newest), count(DISTINCT pod)
	FROM seen GROUP BY 1, 2, 3, 4, 5;
DROP TABLE seen;
ALTER TABLE seen_days RENAME TO seen;
CREATE INDEX recordings_poison ON recordings (received) WHERE state='poison';
-- How many recordings are in each state: every page and every scrape of metrics asks for it.
CREATE TABLE states (state VARCHAR(16) NOT NULL PRIMARY KEY, n BIGINT NOT NULL) WITHOUT ROWID;
INSERT INTO states SELECT state, count(*) FROM recordings GROUP BY state;
-- +goose StatementBegin
CREATE TRIGGER states_more AFTER INSERT ON recordings BEGIN
	INSERT INTO states VALUES (new.state, 1) ON CONFLICT DO UPDATE SET n=n+1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER states_less AFTER DELETE ON recordings BEGIN
	UPDATE states SET n=n-1 WHERE state=old.state;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER states_other AFTER UPDATE OF state ON recordings WHEN new.state<>old.state BEGIN
	UPDATE states SET n=n-1 WHERE state=old.state;
	INSERT INTO states VALUES (new.state, 1) ON CONFLICT DO UPDATE SET n=n+1;
END;
-- +goose StatementEnd
