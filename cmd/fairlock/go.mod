module github.com/fairlock/fairlock-go/cmd/fairlock

go 1.26.0

require (
	charm.land/bubbletea/v2 v2.0.9
	charm.land/lipgloss/v2 v2.0.6
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/fairlock/fairlock-go v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/spf13/cobra v1.10.2
	github.com/stretchr/testify v1.12.1
	golang.org/x/term v0.47.0
)

// Until the library's first tag.
replace github.com/fairlock/fairlock-go => ../..
