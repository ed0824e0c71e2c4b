-- +goose Up
-- By how many times the load of a recorded process can grow until its first limit saturates. Recordings that an earlier version explained have
-- no row until they are explained again.
CREATE TABLE headrooms (
	service VARCHAR(128) NOT NULL, version VARCHAR(128) NOT NULL, environment VARCHAR(128) NOT NULL, moment BIGINT NOT NULL, recording VARCHAR(32) NOT NULL,
	times DOUBLE PRECISION NOT NULL, low DOUBLE PRECISION NOT NULL, high DOUBLE PRECISION NOT NULL, resource VARCHAR(512) NOT NULL,
	unjudged VARCHAR(512) NOT NULL, reason VARCHAR(512) NOT NULL,
	PRIMARY KEY (service, version, environment, moment, recording)) WITHOUT ROWID;
