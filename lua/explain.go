package lua

import (
	"context"
	"fmt"
	"strings"
)

// explain adds to an error of the server what a person needs to find its cause: Redis says that a key has the wrong
// type, but not which.
func (l Lock) explain(ctx context.Context, err error) error {
	switch {
	case says(err, "WRONGTYPE"):
		if key := l.foreign(ctx); key != "" {
			return fmt.Errorf("key %q is not ours: %w", key, err)
		}
		return fmt.Errorf("one of the keys %q is not ours: %w", l.keys, err)
	case says(err, "NOPERM"), says(err, "OOM"), says(err, "can't run this command"):
		return fmt.Errorf("keys %q: %w", l.prefix()+"*", err)
	}
	return err
}

// says looks for the words anywhere: before version 7, and in memory, the errors of scripts are wrapped into others.
func says(err error, words string) bool { return strings.Contains(err.Error(), words) }

// foreign returns the name of the key that has the wrong type, or nothing.
func (l Lock) foreign(ctx context.Context) string {
	found, err := typesScript.Run(ctx, l.rdb, l.keys).StringSlice()
	if err != nil || len(found) != len(l.keys) {
		return ""
	}
	for i, have := range found {
		if key := l.keys[i]; have != "none" && have != types[key[strings.LastIndexByte(key, ':')+1:]] {
			return key
		}
	}
	return ""
}

func (l Lock) prefix() string {
	queue := l.keys[0]
	return queue[:strings.LastIndexByte(queue, ':')+1]
}
