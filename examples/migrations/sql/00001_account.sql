-- +goose Up
CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL);

-- +goose Down
DROP TABLE account;
