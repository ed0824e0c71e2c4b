-- +goose Up
-- How many findings a service has is asked for each of its recordings.
CREATE INDEX problems_service ON problems (service);
