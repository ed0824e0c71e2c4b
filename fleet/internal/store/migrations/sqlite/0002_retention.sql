-- +goose Up
CREATE INDEX slow_moment ON slow (moment);
CREATE INDEX recordings_gone ON recordings (received) WHERE raw=0;
