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
		Short: "Show the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), version())
			return err
		},
	}
}

// version returns the version of this program, and the layout of its locks in Redis.
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
		revision += ", with uncommitted changes"
	}
	return fmt.Sprintf("fairlock  %s\nrevision  %s\nbuilt by  %s for %s/%s\nlayout    %s\n",
		cmp.Or(info.Main.Version, "(devel)"), revision, info.GoVersion, runtime.GOOS, runtime.GOARCH, tokens.Layout)
}
