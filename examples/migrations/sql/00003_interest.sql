-- +goose Up
UPDATE account SET balance = balance * 2; -- twice would be too much

-- +goose Down
UPDATE account SET balance = balance / 2;
