// Package view formats locks as a table, as lines, as JSON, or live on a terminal.
//
// A program that has a token can release its lock, so tokens are shown redacted. Text of other programs in Redis is not
// shown. Names can have any bytes, and those that would control a terminal are quoted.
package view
