package examples_test

import (
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bep/goat"
	"github.com/stretchr/testify/require"
)

//go:generate go test -run ^TestThePicturesAreThoseOfTheirSources$ . -update
var update = flag.Bool("update", false, "draw the pictures of the documentation anew")

// Its own ground makes a picture readable wherever it is shown, whatever that page's colours are.
const picture = `<svg xmlns="http://www.w3.org/2000/svg" role="img"
 width="%[1]d" height="%[2]d" viewBox="-16 -8 %[1]d %[2]d"
 font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="13">
<title>%[3]s</title>
<style>
%[4]s</style>
<rect class="ground" x="-16" y="-8" width="100%%" height="100%%" rx="6"/>
%[5]s</svg>
`

// draw draws a picture from its source: a line with its title, an empty line, and what it looks like.
func draw(source, style string) string {
	title, art, _ := strings.Cut(source, "\n\n")
	svg := goat.BuildSVG(strings.NewReader(art))
	return fmt.Sprintf(picture, svg.Width+32, svg.Height+16, html.EscapeString(title), style, svg.Body)
}

func TestThePicturesAreThoseOfTheirSources(t *testing.T) {
	sources, err := filepath.Glob("../docs/pictures/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, sources)
	for _, source := range sources {
		file := strings.TrimSuffix(source, ".txt") + ".svg"
		drawn := draw(read(t, source), read(t, "../docs/pictures/style.css"))
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(drawn), 0o600))
		}
		if drawn != read(t, file) {
			t.Errorf("%s is not what %s says; go generate draws it anew", file, source)
		}
	}
}
