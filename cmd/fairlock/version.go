package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/internal/tokens"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show which fairlock this is",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), version())
			return err
		},
	}
}

// version says of what this program was built, and which layout its locks have in Redis.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok { // it was not built by the go command
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	facts := map[string]string{}
	for _, s := range info.Settings {
		facts[s.Key] = s.Value
	}
	revision := cmp.Or(facts["vcs.revision"], "unknown")
	if facts["vcs.modified"] == "true" {
		revision += ", with changes that are not committed"
	}
	return fmt.Sprintf("fairlock  %s\nrevision  %s\nbuilt by  %s for %s/%s\nlayout    %s\n",
		cmp.Or(info.Main.Version, "(devel)"), revision, info.GoVersion, runtime.GOOS, runtime.GOARCH, tokens.Layout)
}
