-- +goose Up
INSERT INTO account VALUES ('ann', 100);

-- +goose Down
DELETE FROM account WHERE name = 'ann';
