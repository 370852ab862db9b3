package view

import (
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/stretchr/testify/require"
)

func TestPlainTextIsShownAsItIsAndOtherTextIsQuoted(t *testing.T) {
	for text, want := range map[string]string{
		"billing:42": "billing:42", "日本語": "日本語", "a*{}%": "a*{}%", "": `""`, "a b": `"a b"`,
		"\x1b[2J": `"\x1b[2J"`, "a\nb": `"a\nb"`,
		"\u202eevil": `"\u202eevil"`, "\x9b31m": `"\x9b31m"`, "\u009b31m": `"\u009b31m"`, `"`: `"\""`, `\x1b`: `"\\x1b"`,
		"\x00": `"\x00"`, "\u00a0": `"\u00a0"`, "\x7f": `"\x7f"`,
	} {
		require.Equal(t, want, Plain(text))
	}
	require.Equal(t, "a b  c", unseen("a\x1bb\u202e\nc"))
}

func TestSpansAreBriefAndNeverTooLong(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 999999 * time.Microsecond: "999ms", time.Second: "1.0s", 59999 * time.Millisecond: "59.9s",
		time.Minute: "1m00s", 3599 * time.Second: "59m59s", 3*time.Hour + 5*time.Minute: "3h05m", 49 * time.Hour: "2d01h",
		-1500 * time.Millisecond: "-1.5s",
	} {
		require.Equal(t, want, span(d))
	}
}

func TestATextIsShortenedInTheMiddle(t *testing.T) {
	long := strings.Repeat("h", 60) + "-4711-Yx3a"
	short := shorten(long, 40)
	require.Equal(t, strings.Repeat("h", 20)+"…"+strings.Repeat("h", 9)+"-4711-Yx3a", short)
	require.Equal(t, 40, lipgloss.Width(short))
	require.Equal(t, long, shorten(long, 70))
}

func TestColoursAreUsedOnlyIfTheyAreWanted(t *testing.T) {
	require.Equal(t, "a", Paint{}.in(bad, "a"))
	require.Equal(t, "\x1b[31ma\x1b[m", Paint{On: true}.in(bad, "a"))
}
