// Command release checks whether a version of this repository's modules can be published. It makes the commit at which
// the modules besides the library are tagged; see RELEASING.md.
//
//	release -version v0.1.0        tries the version in a copy of the tree
//	release -version v0.1.0 -pin   changes the go.mod of each module in this tree as its tag has it
//	release -version v0.1.0 -sbom dist   lists the modules of the programs in dist, as .ci/binaries has built them
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/mod/semver"
)

func main() {
	version := flag.String("version", "", "the `version` to publish, such as v0.1.0")
	onlyPin := flag.Bool("pin", false, "change the go.mod files of this tree, and nothing else")
	sbomOf := flag.String("sbom", "", "write "+sbomFile+" for the programs in this `directory`, and do nothing else")
	flag.Parse()
	if err := run(*version, *onlyPin, *sbomOf); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(version string, onlyPin bool, sbomOf string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if semver.Canonical(version) != version || semver.Build(version) != "" || version == "" {
		return fmt.Errorf("-version %q is not one like v0.1.0", version)
	}
	if sbomOf != "" {
		return sbom(sbomOf, version)
	}
	tree, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	tree = strings.TrimSpace(tree)
	if onlyPin {
		modules, err := published(tree)
		if err != nil {
			return err
		}
		return pin(modules, version)
	}
	return check(ctx, tree, version)
}
