-- +goose Up
-- What webhooks have said of a problem or a version: see internal/notify.
CREATE TABLE told (what VARCHAR(512) NOT NULL PRIMARY KEY, state VARCHAR(16) NOT NULL, moment BIGINT NOT NULL);
CREATE TABLE outbox (id VARCHAR(64) NOT NULL PRIMARY KEY, body BLOB NOT NULL, made BIGINT NOT NULL, due BIGINT NOT NULL, tries INTEGER NOT NULL);
CREATE INDEX outbox_due ON outbox (due);
