package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// sbomFile has the modules that are in any of the programs, in the format CycloneDX.
const sbomFile = "fairlock-sbom.cdx.json"

type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type     string     `json:"type"`
	Name     string     `json:"name"`
	Version  string     `json:"version"`
	PURL     string     `json:"purl"`
	Property []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// sbom writes sbomFile beside the programs. What is in them, the linker has written into them.
func sbom(dir, version string) error {
	programs, err := filepath.Glob(filepath.Join(dir, "fairlock-*-*64*"))
	if err != nil {
		return err
	}
	if len(programs) == 0 {
		return fmt.Errorf("%s has no programs", dir)
	}
	var main component
	all := map[string]component{}
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		if info.Main.Version != version {
			return fmt.Errorf("%s is of %s, not of %s", path, info.Main.Version, version)
		}
		main = library(&info.Main)
		main.Type = "application"
		all["std"] = library(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})
		for _, m := range info.Deps {
			if m.Replace != nil {
				return fmt.Errorf("%s replaces %s", path, m.Path)
			}
			all[m.Path] = library(m)
		}
	}
	text, err := json.MarshalIndent(bom{
		Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{main},
		Components: slices.SortedFunc(maps.Values(all), func(a, b component) int { return cmp.Compare(a.Name, b.Name) }),
	}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sbomFile), append(text, '\n'), 0o600)
}

func library(m *debug.Module) component {
	c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version}
	if m.Sum != "" { // as in go.sum
		c.Property = []property{{"fairlock:go.sum", m.Sum}}
	}
	return c
}
